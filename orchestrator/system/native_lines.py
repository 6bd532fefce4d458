"""Lines of the source that addresses of a native program belong to, by addr2line (binutils)."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from nsight_prof.orchestrator.system.process import ask

PAGE = 1 << 12
ELF, ENTRY = b"\x7fELF\x02\x01", struct.Struct("<24xQ")  # 64 bits, little endian
OF_TOOLKIT = re.compile(r"^\?|^/usr/(?:include|lib)/|/cuda[^/]*/include/|/targets/[^/]+/include/")
"""Files that the compiler brings along, and unknown ones."""
STUB = "__device_stub_"
"""Part of the name of functions that nvcc (13.0) writes to launch a kernel, whose own name follows.
The kernel's function on the host, which calls it, has the kernel's first line."""
ADDRESS = re.compile(r"^0x[0-9a-f]+$", re.MULTILINE)
LIMIT_S = 20.0


def keep_native_lines(modules: Mapping[str, tuple[int, Sequence[int]]], path: Path) -> None:
    """Write `file:line` of return addresses by module, as far as programs have debug information.

    Of each module its address within the entry is known, and addresses that are asked for. Nothing
    is written without addr2line, or where no line is known.
    """
    tool = shutil.which("addr2line")
    found = {
        name: lines
        for name, (entry, addresses) in modules.items()
        if tool and (lines := _lines(tool, Path(name), entry, addresses))
    }
    if found:
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _lines(tool: str, module: Path, entry: int, addresses: Sequence[int]) -> dict[str, str]:
    linked = _linked_entry(module)
    if linked is None:
        return {}
    # A program is loaded at a page, and calls main within the first bytes of its entry.
    base = (entry - linked) // PAGE * PAGE
    asked = [f"{address - base - 1:#x}" for address in addresses]  # the call, not what follows it
    answer = ask((tool, "-a", "-f", "-i", "-e", str(module), *asked), timeout_s=LIMIT_S)
    # After each address come its functions and their lines, the innermost of inlined ones first.
    answers = [text.split("\n")[1:] for text in ADDRESS.split(answer.stdout)[1:]]
    if len(answers) != len(addresses):
        return {}
    chains = [list(zip(lines[::2], lines[1::2], strict=False)) for lines in answers]
    stubs = {name for chain in chains for name, _ in chain if STUB in name}
    places = {}
    for address, chain in zip(addresses, chains, strict=True):
        of_program = [
            line.split(" ")[0]
            for name, line in chain
            if not OF_TOOLKIT.search(line)
            and STUB not in name
            and not any(f"{STUB}{name}" in stub for stub in stubs)
        ]
        if of_program and of_program[0].rpartition(":")[2].isdigit():
            places[str(address)] = of_program[0]
    return places


def _linked_entry(module: Path) -> int | None:
    """Return the address of its entry in a program's file; None where it is no program of ELF."""
    try:
        with module.open("rb") as file:
            head = file.read(ENTRY.size)
    except OSError:
        return None
    if len(head) < ENTRY.size or not head.startswith(ELF):
        return None
    entry: int = ENTRY.unpack(head)[0]
    return entry
