"""Reads the line table of a cubin (section .debug_line): lines that an instruction was inlined in.

It is DWARF 2 with two operations of NVIDIA's: 0x90 names the row of the sequence, from 1, whose
line called what the rows after it are of, 0 for none, and the name of that function; 0x91 names a
function (seen with nvcc 13.0). ncu's source page (2025.3.1) names the lines of those calls too, but
of an unrolled loop only in the first pass.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from posixpath import join, normpath

from nsight_prof.parsers.cubin.elf import TEXT, Cubin

SECTION = ".debug_line"
Line = tuple[str, int]
"""File and number of a line."""
MOST_CALLS = 64
"""Calls within calls that are followed."""
_UNIT = struct.Struct("<IHI")
_STEPS = struct.Struct("<BBbBB")  # shortest instruction, default, line base, line range, opcodes
_END, _ADDRESS, _INLINED = 1, 2, 0x90
_COPY, _PC, _LINE, _FILE, _CONST_PC, _FIXED_PC = 1, 2, 3, 4, 8, 9


@dataclass(frozen=True)
class _Row:
    address: int = 0
    file: int = 1
    line: int = 1
    caller: int = 0


@dataclass
class _Sequence:
    position: int = -1
    rows: list[_Row] = field(default_factory=list)


class _Bytes:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def number(self, *, signed: bool = False) -> int:
        """Take a number in LEB128."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << shift) if signed and byte & 64 else value

    def text(self) -> str:
        """Take a text up to its zero."""
        end = self.data.index(b"\0", self.at)
        text, self.at = self.data[self.at : end].decode(errors="replace"), end + 1
        return text


def inlined_lines(cubin: Cubin) -> dict[str, dict[int, tuple[Line, ...]]]:
    """Return the lines of each instruction of each function by its offset, innermost first.

    An offset holds up to the next one. Empty where the cubin has no line table that can be read.
    """
    targets = cubin.targets(SECTION)
    found: dict[str, dict[int, tuple[Line, ...]]] = {}
    try:
        for files, sequence in _sequences(cubin.sections.get(SECTION, b"")):
            function = targets.get(sequence.position, "")
            if function.startswith(TEXT):
                chains = {row.address: _chain(row, sequence.rows, files) for row in sequence.rows}
                found[function.removeprefix(TEXT)] = chains
    except (struct.error, IndexError, ValueError):
        return {}
    return found


def _chain(row: _Row, rows: list[_Row], files: list[str]) -> tuple[Line, ...]:
    lines: list[Line] = []
    while len(lines) < MOST_CALLS:
        lines.append((files[row.file - 1], row.line))
        if not 0 < row.caller <= len(rows):
            break
        row = rows[row.caller - 1]
    return tuple(lines)


def _sequences(data: bytes) -> Iterator[tuple[list[str], _Sequence]]:
    """Return the rows of each function, with the files of its unit."""
    start = 0
    while start < len(data):
        length, version, header = _UNIT.unpack_from(data, start)
        if not 2 <= version <= 4:
            raise ValueError(f"version {version} of the line table")
        first, end = start + _UNIT.size, start + 4 + length
        files, steps = _head(data, first, version)
        for sequence in _program(data, first + header, min(end, len(data)), steps):
            yield files, sequence
        start = end


def _head(data: bytes, at: int, version: int) -> tuple[list[str], tuple[int, ...]]:
    steps = _STEPS.unpack_from(data, at + (version == 4))
    shortest, _, base, span, opcodes = steps
    taken = _Bytes(data, at + (version == 4) + _STEPS.size)
    operands = taken.data[taken.at : taken.at + opcodes - 1]
    taken.at += opcodes - 1
    folders, files = [""], []
    while folder := taken.text():
        folders.append(folder)
    while name := taken.text():
        folder = folders[taken.number()]
        taken.number(), taken.number()  # time and size
        files.append(normpath(join(folder, name)))
    return files, (shortest, base, span, opcodes, *operands)


def _program(data: bytes, at: int, end: int, steps: tuple[int, ...]) -> Iterator[_Sequence]:
    shortest, base, span, opcodes = steps[:4]
    taken, row, sequence = _Bytes(data, at), _Row(), _Sequence()
    while taken.at < end:
        code = taken.data[taken.at]
        taken.at += 1
        if code >= opcodes:
            skipped, lines = divmod(code - opcodes, span)
            row = replace(
                row, address=row.address + skipped * shortest, line=row.line + base + lines
            )
            sequence.rows.append(row)
        elif code == 0:
            size = taken.number()
            extended = _Bytes(data, taken.at + 1)
            taken.at += size
            kind = data[extended.at - 1]
            if kind == _END:
                yield sequence
                row, sequence = _Row(), _Sequence()
            elif kind == _ADDRESS:
                sequence.position = extended.at
                row = replace(row, address=int.from_bytes(data[extended.at : taken.at], "little"))
            elif kind == _INLINED:
                row = replace(row, caller=extended.number())
        elif code == _COPY:
            sequence.rows.append(row)
        else:
            row = _moved(row, code, taken, steps)


def _moved(row: _Row, code: int, taken: _Bytes, steps: tuple[int, ...]) -> _Row:
    shortest, _, span, opcodes, *operands = steps
    if code == _PC:
        return replace(row, address=row.address + taken.number() * shortest)
    if code == _LINE:
        return replace(row, line=row.line + taken.number(signed=True))
    if code == _FILE:
        return replace(row, file=taken.number())
    if code == _CONST_PC:
        return replace(row, address=row.address + (255 - opcodes) // span * shortest)
    if code == _FIXED_PC:
        taken.at += 2
        return replace(
            row, address=row.address + struct.unpack_from("<H", taken.data, taken.at - 2)[0]
        )
    for _ in range(operands[code - 1]):
        taken.number()
    return row
