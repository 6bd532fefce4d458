"""Section of memory and functions: what stages allocate, and which functions call the operators."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from nsight_prof.parsers.cells import Row, known, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import (
    Column,
    Json,
    Name,
    Number,
    Ref,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
)

KEY, TITLE = "stage-memory", Text("Memory of the stages, and functions of the program")
INTRO = Text(
    "What torch's allocator gave out while the torch profiler recorded, and the Python functions "
    "around the operators; the host is slower under it."
)
PATHS = Text(
    "Outermost function first; file and line are those of its definition. Functions that all "
    "operators of a stage were called from are left out: table operators has them."
)
SHOWN = 15
"""Functions of the table."""


def section(run: Run) -> Section | None:
    """Return the section; None where neither memory nor functions were recorded."""
    memory, functions = records(run.stage_memory), _functions(run)
    if not memory and not functions:
        return None
    calls = [_calls(functions, outer_functions(run))] if functions else []
    found = ([memory_table(memory)] if memory else []) + calls
    return Section(KEY, TITLE, (INTRO, *found), numbers={"stage_memory": _numbers(memory)})


def _functions(run: Run) -> list[Row]:
    """Sums of the operators of each call path, most GPU time first."""
    columns = ["gpu_ns", "self_cpu_ns", "allocated_bytes", "calls"]
    with_path = run.operators[run.operators["call_path"].fillna("") != ""]
    sums = with_path.groupby(["stage", "call_path"], as_index=False)[columns].sum()
    return records(sums.sort_values("gpu_ns", ascending=False, kind="stable"))


Outer = Mapping[str, Sequence[str]]


def outer_functions(run: Run) -> Outer:
    """Return of each stage the functions that all of its operators were called from."""
    with_path = run.operators[run.operators["call_path"].fillna("") != ""]
    return {
        str(stage): os.path.commonprefix([split_path(path) for path in of["call_path"].unique()])
        for stage, of in with_path.groupby("stage")
    }


def split_path(path: str) -> list[str]:
    """Return the functions of a call path, outermost first."""
    return [function for function in path.split(" > ") if function]


def inner_path(row: Row, outer: Outer) -> str:
    """Return the call path of a row without the functions that all of its stage have in common."""
    shared = outer.get(text(row["stage"]), ())
    return " > ".join(split_path(text(row["call_path"]))[len(shared) :])


def stage_name(row: Row) -> Value:
    """Return the stage of a row, in words where it is outside of every stage."""
    name = text(row["stage"])
    return Verbatim(name) if name else Name("outside of stages")


def memory_table(rows: Sequence[Row]) -> Table[Row]:
    """Return what each stage allocated, and its peak, by rows of table `stage_memory`."""

    def cell(row: Row, column: str, unit: str) -> Number:
        return Number(known(row[column]), unit, (Ref("stage_memory", text(row["stage"]), column),))

    return Table(
        KEY,
        Text("Memory by stage"),
        [
            Column(Text("Stage"), stage_name),
            Column(Text("GPU"), lambda row: Number(known(row["device"]), "count")),
            Column(Text("Peak"), lambda row: cell(row, "peak_bytes", "B")),
            Column(Text("Allocated"), lambda row: cell(row, "allocated_bytes", "B")),
            Column(Text("Freed"), lambda row: cell(row, "freed_bytes", "B")),
            Column(Text("Allocations"), lambda row: cell(row, "allocations", "count")),
        ],
        rows,
        note=Text("Peak: the most that was given out at once, by the allocator's own count."),
    )


def _calls(rows: Sequence[Row], outer: Outer) -> Table[Row]:
    return Table(
        "call-paths",
        Text("Functions that call the operators"),
        [
            Column(Text("Stage"), stage_name),
            Column(Text("Functions"), lambda row: Verbatim(inner_path(row, outer))),
            Column(Text("GPU time"), lambda row: Number(known(row["gpu_ns"]), "ns")),
            Column(Text("Host time"), lambda row: Number(known(row["self_cpu_ns"]), "ns")),
            Column(Text("Calls"), lambda row: Number(known(row["calls"]), "count")),
            Column(Text("Allocated"), lambda row: Number(known(row["allocated_bytes"]), "B")),
        ],
        rows,
        note=PATHS,
        preview=SHOWN,
    )


def _numbers(rows: Sequence[Row]) -> Json:
    names = ("device", "peak_bytes", "allocated_bytes", "freed_bytes", "allocations")
    return [{"stage": text(r["stage"])} | {name: known(r[name]) for name in names} for r in rows]
