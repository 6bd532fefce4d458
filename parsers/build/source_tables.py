"""Turns the source page of ncu into tables `source_lines` and `source_instructions`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.gaps import Gaps
from nsight_prof.parsers.cubin.elf import Cubin, cubins
from nsight_prof.parsers.cubin.line_table import inlined_lines
from nsight_prof.parsers.cubin.triton_calls import calling_lines, embedded_texts
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.ncu import NcuCapture
from nsight_prof.parsers.ncu.source_page import Instruction, SourceOfKernel, read_source_page
from nsight_prof.parsers.run.directory import RunDir, plain_file, read_manifest
from nsight_prof.parsers.run.sentences import stored

PAGE, REPORT = "source.csv", "counters.ncu-rep"
LINES, INSTRUCTIONS = "source_lines", "source_instructions"
DIVISION, DIVIDES = re.compile(r"\bI2F\S*\.RP\b"), re.compile(r"[/%]")
COMMENT = re.compile(r"//.*|/\*.*?\*/")
"""How a division of integers begins in SASS, and what divides in the text of a line of C++."""
LONGEST_TEXT = 300
"""Characters of a line of source, or of an instruction, that are kept."""


def source_frames(
    run: RunDir, capture: NcuCapture, joins: pd.DataFrame, gaps: Gaps
) -> dict[str, pd.DataFrame]:
    """Return both tables; why they are empty goes into `gaps` where they were asked for.

    `joins` is the table of that name.
    """
    found = _kernels(run, capture, joins, gaps)
    lines = [row for key, kernel in found for row in _lines(key, kernel)]
    instructions = [row for key, kernel in found for row in _instructions(key, kernel)]
    return {
        name: tables.check(pd.DataFrame(rows), name) if rows else tables.empty(name)
        for name, rows in ((LINES, lines), (INSTRUCTIONS, instructions))
    }


def _kernels(
    run: RunDir, capture: NcuCapture, joins: pd.DataFrame, gaps: Gaps
) -> list[tuple[str, SourceOfKernel]]:
    """The first profiled launch of each kernel that has lines, with the key of the kernel."""
    path = run.artifact("counters", PAGE)
    if path is None:
        if _asked(run):
            gaps.add(
                LINES, stored("the counters step left no {page}: its warnings say why", page=PAGE)
            )
        return []
    try:
        pages = read_source_page(path)
    except ProfError as error:
        gaps.unreadable(LINES, path, error)
        return []
    if not pages:
        gaps.add(
            LINES,
            stored(
                "no profiled kernel has line information: build with nvcc -lineinfo; kernels of "
                "Triton and torch.compile have it, those of libraries have none"
            ),
        )
    launches = capture.launches
    names = launches["mangled_name"].fillna(launches["name"])
    profiled = {str(name): list(group) for name, group in launches["profile"].groupby(names)}
    keys = dict(zip(joins["profile"], joins["kernel_id"], strict=True))
    pages_of: Counter[str] = Counter(page.function for page in pages)
    found: dict[str, SourceOfKernel] = {}
    at: Counter[str] = Counter()
    for page in pages:
        profiles = profiled.get(page.function, [])
        if len(profiles) != pages_of[page.function]:
            continue
        key = keys.get(profiles[at[page.function]])
        at[page.function] += 1
        if key is not None and not pd.isna(key):
            found.setdefault(str(key), page)
    for function in {page.function for page in pages}:
        if len(profiled.get(function, [])) != pages_of[function]:
            gaps.add(
                LINES,
                stored(
                    "{name} is of other launches of {function} than the counters",
                    name=path.name,
                    function=function,
                ),
            )
    report = _content(run.artifact("counters", REPORT)) if found else b""
    compiled = list(cubins(report))
    return [
        (key, with_calls(with_callers(kernel, compiled), report)) for key, kernel in found.items()
    ]


def _content(report: Path | None) -> bytes:
    if report is None:
        return b""
    with plain_file(report) as unpacked:
        return unpacked.read_bytes()


def with_callers(kernel: SourceOfKernel, compiled: Sequence[Cubin]) -> SourceOfKernel:
    """Return a kernel with the lines that each instruction was inlined into.

    They are of the cubin that knows each line of the page: several may have a kernel of one name.
    """
    for cubin in compiled:
        chains = inlined_lines(cubin).get(kernel.function, {})
        begins, first = sorted(chains), kernel.instructions[0].address
        found = []
        for instruction in kernel.instructions:
            at = bisect_right(begins, instruction.address - first) - 1
            lines = chains[begins[at]] if at >= 0 else ()
            if instruction.line not in lines:
                break
            found.append(replace(instruction, line=lines[0], callers=lines[1:]))
        if found and len(found) == len(kernel.instructions):
            return replace(kernel, instructions=found)
    return kernel


def with_calls(kernel: SourceOfKernel, report: bytes) -> SourceOfKernel:
    """Return a kernel with the lines that call functions of Triton's modules, and their texts.

    Both are of the files that the `report` of ncu holds.
    """
    lines = {line for i in kernel.instructions for line in (i.line, *i.callers)}
    texts = embedded_texts(report, {file for file, _ in lines})
    calls = calling_lines(lines, texts)
    found = [
        replace(i, callers=(calls[i.line],)) if i.line in calls and not i.callers else i
        for i in kernel.instructions
    ]
    found = at_divisions(found, texts)
    of_lines = {
        (file, line): texts[file][line - 1]
        for file, line in (*lines, *calls.values(), *(i.line for i in found))
        if 0 < line <= len(texts.get(file, ()))
    }
    return replace(kernel, instructions=found, texts={**of_lines, **kernel.texts})


def at_divisions(
    instructions: list[Instruction], texts: Mapping[str, Sequence[str]]
) -> list[Instruction]:
    """Return instructions with divisions at the line that divides, where their line does not and
    the next one that does has no instruction: nvcc 13.0 gives those of 64 bits the line before.
    """
    known = sorted({i.line for i in instructions})
    found = []
    for i in instructions:
        (file, line), is_cpp = i.line, not i.line[0].endswith(".py")
        if is_cpp and not i.callers and DIVISION.search(i.sass):
            after = next(iter(known[bisect_right(known, i.line) :]), ("", 0))
            end = after[1] if after[0] == file else line
            code = texts.get(file, ())[line - 1 : end - 1]
            divides = (at for at, text in enumerate(code) if DIVIDES.search(COMMENT.sub("", text)))
            i = replace(i, line=(file, line + next(divides, 0)))
        found.append(i)
    return found


def _lines(kernel_id: str, kernel: SourceOfKernel) -> list[dict[str, object]]:
    """One row per line that has instructions, or callers of such, most samples first."""
    groups: dict[tuple[str, int], list[Instruction]] = {}
    for instruction in kernel.instructions:
        groups.setdefault(instruction.line, []).append(instruction)
    for instruction in kernel.instructions:
        for line in instruction.callers:
            groups.setdefault(line, [])
    ordered = sorted(groups.items(), key=lambda item: -(_sum(i.samples for i in item[1]) or 0))
    total = _sum(i.samples for i in kernel.instructions)
    rows: list[dict[str, object]] = []
    for (file, number), group in ordered:
        samples = _sum(i.samples for i in group)
        stalls: Counter[str] = Counter()
        for instruction in group:
            stalls.update(instruction.stalls)
        ((stall, stalled),) = stalls.most_common(1) or [("", 0)]
        rows.append(
            {
                "kernel_id": kernel_id,
                "file": file,
                "line": number,
                "source": kernel.texts.get((file, number), "").rstrip()[:LONGEST_TEXT],
                "samples": samples,
                "share": samples / total if samples is not None and total else None,
                "stall": stall,
                "stall_samples": stalled if stalls else None,
                "instructions": _sum(i.instructions for i in group),
                "sectors": _sum(i.sectors for i in group),
                "excessive_sectors": _sum(i.excessive_sectors for i in group),
            }
        )
    return rows


def _instructions(kernel_id: str, kernel: SourceOfKernel) -> list[dict[str, object]]:
    """One row per instruction, in the order of the program."""
    first = kernel.instructions[0].address if kernel.instructions else 0
    return [
        {
            "kernel_id": kernel_id,
            "offset": i.address - first,
            "sass": i.sass[:LONGEST_TEXT],
            "file": i.line[0],
            "line": i.line[1],
            "callers": " < ".join(f"{file}:{line}" for file, line in i.callers),
            "samples": i.samples,
            "stall": max(i.stalls, key=i.stalls.__getitem__, default=""),
            "instructions": i.instructions,
            "sectors": i.sectors,
            "excessive_sectors": i.excessive_sectors,
            "divergent_branches": i.divergent_branches,
            "bank_conflicts": i.bank_conflicts,
        }
        for i in kernel.instructions
    ]


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _asked(run: RunDir) -> bool:
    counters = read_manifest(run).recipe.get("counters") or {}
    return bool(counters.get("source"))
