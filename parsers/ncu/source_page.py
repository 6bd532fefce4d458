"""Reads the source page of ncu (`--page source --csv --print-source cuda,sass`): what each did.

A result has a block for each source file of a kernel: file, function, a head, and then the lines,
each followed by its instructions (seen with ncu 2024.1.1). An instruction that was inlined stands
under each line that it came through. Counts of one line are those of its instructions, so here each
instruction belongs to one line alone: of those it stands under, the one with the fewest
instructions, which is the innermost.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nsight_prof.parsers.ncu.text_file import read_text

FILE, FUNCTION, LINE, ADDRESS, SOURCE = "File Path", "Function Name", "Line No", "Address", "Source"
UNREADABLE = "<Unable to open source file>"
SAMPLES = "Warp Stall Sampling (All"
NUMBERS = {
    "instructions": "Instructions Executed",
    "sectors": "L2 Theoretical Sectors Global",
    "excessive_sectors": "L2 Theoretical Sectors Global Excessive",
    "divergent_branches": "Divergent Branches",
    "bank_conflicts": "L1 Wavefronts Shared Excessive",
}
STALL, NOT_ISSUED = "stall_", "(Not Issued)"
Line = tuple[str, int]
"""File and number of a line."""


@dataclass(frozen=True)
class Instruction:
    """One instruction of SASS: warps that executed it, samples of warps that stood at it.

    `line` is the innermost line it comes from, `callers` are those around it that it was inlined
    into, innermost first, where they are known. Numbers are None where the page has no column of
    them; `stalls` are samples by reason.
    """

    address: int
    sass: str
    line: Line
    samples: int | None
    instructions: int | None
    sectors: int | None
    excessive_sectors: int | None
    divergent_branches: int | None
    bank_conflicts: int | None
    stalls: Mapping[str, int]
    callers: tuple[Line, ...] = ()


@dataclass
class SourceOfKernel:
    """The instructions of one profiled launch, by address, and the text of its lines.

    A line whose file could not be opened where the report was made has no text.
    """

    function: str
    instructions: list[Instruction]
    texts: dict[Line, str]


@dataclass
class _Result:
    function: str
    files: set[str] = field(default_factory=set)
    texts: dict[Line, str] = field(default_factory=dict)
    under: dict[int, list[Line]] = field(default_factory=dict)
    cells: dict[int, dict[str, str]] = field(default_factory=dict)


def read_source_page(path: Path) -> list[SourceOfKernel]:
    """Read a source page (.csv or .csv.xz): kernels with line information, in order of results.

    Raises:
        ArtifactUnreadable: it is no text.
    """
    return parse_source_page(read_text(path).splitlines())


def parse_source_page(lines: Iterable[str]) -> list[SourceOfKernel]:
    """Parse the lines of a source page; warnings of ncu between them are left out."""
    results: list[_Result] = []
    file, function, head = "", "", list[str]()
    line: Line = "", 0
    for row in csv.reader(text for text in lines if not text.startswith("==")):
        if row[:1] == [FILE]:
            file = row[1] if len(row) > 1 else ""
        elif row[:1] == [FUNCTION]:
            function = row[1] if len(row) > 1 else ""
            if not results or results[-1].function != function or file in results[-1].files:
                results.append(_Result(function))
            results[-1].files.add(file)
        elif row[:1] == [LINE]:
            head = row
        elif results and head and row and row[0].isdigit():
            line = file, int(row[0])
            if len(row) > 1 and row[1] != UNREADABLE:
                results[-1].texts[line] = row[1]
        elif results and head:
            _add(results[-1], line, dict(_cells(head, row)))
    return [_finished(result) for result in results]


def _cells(head: list[str], row: list[str]) -> Iterator[tuple[str, str]]:
    """Cells by the name of their column; the second `Source` is that of the instruction."""
    yield from zip(head, row, strict=False)  # a page that was cut off ends in a short row


def _add(result: _Result, line: Line, cells: dict[str, str]) -> None:
    address = cells.get(ADDRESS, "")
    if address.startswith("0x"):
        try:
            number = int(address, 16)
        except ValueError:
            return
        result.under.setdefault(number, []).append(line)
        result.cells[number] = cells


def _finished(result: _Result) -> SourceOfKernel:
    sizes = Counter(line for lines in result.under.values() for line in lines)
    found = []
    for address in sorted(result.under):
        cells = result.cells[address]
        line = min(result.under[address], key=lambda line: (sizes[line], line))
        all_samples = next((v for k, v in cells.items() if k.startswith(SAMPLES)), "")
        found.append(
            Instruction(
                address=address,
                sass=cells.get(SOURCE, "").strip(),
                line=line,
                samples=_number(all_samples),
                **{name: _number(cells.get(column, "")) for name, column in NUMBERS.items()},
                stalls=_stalls(cells),
                callers=(),
            )
        )
    return SourceOfKernel(result.function, found, result.texts)


def _stalls(cells: Mapping[str, str]) -> dict[str, int]:
    """Samples by reason; `selected` is no stall, and reasons without samples are left out."""
    by_reason = {
        name.removeprefix(STALL): _number(value)
        for name, value in cells.items()
        if name.startswith(STALL) and not name.endswith(NOT_ISSUED)
    }
    return {name: n for name, n in by_reason.items() if n and name != "selected"}


def _number(text: str) -> int | None:
    digits = text.replace(",", "")
    return int(digits) if digits.isdigit() else None
