"""Finds cubins (ELF files of 64 bits) within another file, and their sections."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = re.compile(rb"\x7fELF\x02\x01")
_HEADER = struct.Struct("<40xQ10xHHH")  # offset of the section headers, their size, number, names
_SECTION = struct.Struct("<II8x8xQQ24x")  # name, type, offset, size
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQ")  # offset, info; addends are 8 bytes more
RELA, RELA_SIZE = 4, 24
TEXT = ".text."
"""What the name of a section of instructions begins with."""


@dataclass(frozen=True)
class Cubin:
    """The content of sections by name, and the names of sections in the order of their headers."""

    sections: dict[str, bytes]
    names: tuple[str, ...]

    def targets(self, section: str) -> dict[int, str]:
        """Return the section that each relocated place of another one points to."""
        rows = self.sections.get(f".rela{section}", b"")
        size = RELA_SIZE if rows else _RELOCATION.size
        rows = rows or self.sections.get(f".rel{section}", b"")
        symbols = list(_SYMBOL.iter_unpack(self.sections.get(".symtab", b"")))
        found = {}
        for at in range(0, len(rows) - size + 1, size):
            offset, info = _RELOCATION.unpack_from(rows, at)
            header = symbols[info >> 32][3] if info >> 32 < len(symbols) else len(self.names)
            found[offset] = self.names[header] if header < len(self.names) else ""
        return found


def cubins(data: bytes) -> Iterator[Cubin]:
    """Return the cubins that stand in a file as they are; what is none, or cut off, is left out."""
    for start in MAGIC.finditer(data):
        try:
            yield _cubin(memoryview(data)[start.start() :])
        except (struct.error, ValueError, IndexError):
            continue


def _cubin(data: memoryview) -> Cubin:
    begin, size, number, of_names = _HEADER.unpack_from(data)
    if size != 64:
        raise ValueError("no section headers of 64 bits")
    headers = [_SECTION.unpack_from(data, begin + at * size) for at in range(number)]
    contents = [b"" if kind == 8 else bytes(data[at : at + n]) for _, kind, at, n in headers]
    names = tuple(
        contents[of_names][name : contents[of_names].index(b"\0", name)].decode()
        for name, *_ in headers
    )
    return Cubin(dict(zip(names, contents, strict=True)), names)
