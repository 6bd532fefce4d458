"""The page of operators that a foreign benchmark measured."""

from __future__ import annotations

from nsight_prof.parsers.cells import text
from nsight_prof.parsers.predict.aiconfigurator import Counted, counted
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Column, Name, Section, Table, Text, Verbatim
from nsight_prof.reports.predict.notes import notes_of
from nsight_prof.reports.predict.view import PredictionView


def operators_view(run: Run) -> PredictionView:
    """Return what the imported tables hold, and where they are from."""
    frame, manifest = run.imported_operators, run.manifest
    answer = Text(
        "{n} operators of {gpu}, measured by others, are there to predict from with {option}.",
        n=len(frame), gpu=text(manifest.gpus[0]["name"]),
        option=Verbatim("prof predict MODEL --on RUN"),
    )  # fmt: skip
    columns: tuple[Column[Counted], ...] = (
        Column(Text("operator"), lambda row: Text("{kind}", kind=row.kind)),
        Column(Text("type"), lambda row: Name(row.dtype)),
        Column(Text("rows"), lambda row: row.rows),
        Column(Text("file"), lambda row: Name(row.source)),
    )
    key, title = "imported-operators", Text("Operators")
    section = Section(key, Text("Imported tables"), (Table(key, title, columns, counted(frame)),))
    return PredictionView(
        title=text(manifest.recipe.get("name")), question=None, run_id=manifest.run_id,
        created=manifest.created, asked={}, answer=(answer,), sections=(section,),
        notes=notes_of(run),
    )  # fmt: skip
