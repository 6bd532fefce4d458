"""Section of a model's answers: each request with its prediction and its page, as files."""

from __future__ import annotations

from nsight_prof.parsers.cells import Row, known, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Column, Document, Number, Ref, Section, Table, Text, Verbatim

KEY, TITLE = "predictions", Text("Predictions")
STEPS = ("untraced", "trace", "counters", "operators")
"""Whose predictions are shown, the first that has any: no profiler came between."""


def section(run: Run) -> Section | None:
    """Return the section; None for a run whose target predicted nothing."""
    rows = records(run.predictions)
    source = next((step for step in STEPS if any(row["source"] == step for row in rows)), None)
    if source is None:
        return None
    of_source = [row for row in rows if row["source"] == source]
    columns: list[Column[Row]] = [
        Column(Text("Request"), lambda r: Document(text(r["request"]), text(r["file"]))),
        Column(Text("Tokens"), lambda r: _count(r, "tokens")),
        Column(Text("Answer"), lambda r: Verbatim(text(r["answer"]))),
    ]
    if any(text(row["picture"]) for row in of_source):
        columns += [
            Column(Text("Boxes in the answer"), lambda r: _count(r, "boxes")),
            Column(Text("Page with boxes"), _picture),
        ]
    table = Table(
        KEY,
        Text("What the model answered"),
        columns,
        of_source,
        note=Text(
            "Boxes of the data set are blue, those that the answer names orange. An answer without "
            "text comes from a model without a tokenizer; made-up weights answer at random."
        ),
    )
    intro = Text(
        "The model answered {n} request in the step {step}; whole answers are in its folder.",
        "The model answered {n} requests in the step {step}; whole answers are in its folder.",
        n=len(of_source),
        step=Verbatim(source),
    )
    return Section(KEY, TITLE, (intro, table))


def _count(row: Row, column: str) -> Number:
    return Number(known(row[column]), "count", (Ref("predictions", text(row["request"]), column),))


def _picture(row: Row) -> Document | None:
    path = text(row["picture"])
    return Document(path.rpartition("/")[2], path) if path else None
