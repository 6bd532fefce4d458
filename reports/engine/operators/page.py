"""The page operators.md: all operators of a run with shapes, functions and memory."""

from __future__ import annotations

from nsight_prof.parsers.cells import Row, known, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.stage_memory import (
    PATHS,
    Outer,
    inner_path,
    memory_table,
    outer_functions,
    stage_name,
)
from nsight_prof.reports.page import Column, Name, Number, Section, Table, Text, Verbatim

FILE = "operators.md"
MOST = 500
"""Rows of the page; the table of the run has all."""


def operators_page(run: Run) -> Section | None:
    """Return the page; None for a run without an operator view."""
    rows = records(run.operators)
    if not rows:
        return None
    intro = Text(
        "All operators under the torch profiler, most GPU time first, by stage, shapes of the "
        "inputs and functions of the program around them. Host times hold the cost of the profiler."
    )
    memory = records(run.stage_memory)
    tables = [_table(rows, outer_functions(run)), *([memory_table(memory)] if memory else ())]
    return Section("all-operators", Text("Operators"), (intro, *tables))


def _table(rows: list[Row], outer: Outer) -> Table[Row]:
    def number(row: Row, column: str, unit: str) -> Number:
        return Number(known(row[column]), unit)

    def words(value: str) -> Verbatim | None:
        return Verbatim(value) if value else None

    columns = [
        Column(Text("Stage"), stage_name),
        Column(Text("Operator"), lambda row: Verbatim(text(row["operator"]))),
        Column(Text("Input shapes"), lambda row: words(text(row["input_shapes"]))),
        Column(Text("Types"), lambda row: words(text(row["dtypes"]))),
        Column(Text("Calls"), lambda row: number(row, "calls", "count")),
        Column(Text("GPU time"), lambda row: number(row, "gpu_ns", "ns")),
        Column(Text("Host time"), lambda row: number(row, "cpu_ns", "ns")),
        Column(Text("Host time itself"), lambda row: number(row, "self_cpu_ns", "ns")),
        Column(Text("Allocated"), lambda row: number(row, "allocated_bytes", "B")),
        Column(Text("Kernel"), lambda row: Name(text(row["kernel"]))),
        Column(Text("Functions"), lambda row: words(inner_path(row, outer))),
    ]
    title = Text("Operators by stage")
    return Table("all-operators", title, columns, rows, note=PATHS, preview=MOST)
