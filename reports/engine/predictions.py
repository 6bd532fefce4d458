"""Section of a model's answers: each request with its prediction and its page, as files."""

from __future__ import annotations

from nsight_prof.parsers.cells import Row, known, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import (
    Column,
    Document,
    Number,
    Ref,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
)

KEY, TITLE = "predictions", Text("Predictions")
STEPS = ("untraced", "trace", "counters", "operators")
"""Whose predictions are shown, the first that has any: no profiler came between."""
SHOWN = 6
"""Answers that the first sentence leads to."""


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
    return Section(KEY, TITLE, (_intro(of_source, source), *_pages(of_source), table))


def _intro(rows: list[Row], source: str) -> Text:
    return Text(
        "The model answered {n} request in the step {step}: {answers}.",
        "The model answered {n} requests in the step {step}: {answers}.",
        n=len(rows),
        step=Verbatim(source),
        answers=_first([Document(text(row["request"]), text(row["file"])) for row in rows]),
    )


def _pages(rows: list[Row]) -> list[Text]:
    """Lead to the pages with boxes; nothing where none was drawn."""
    pages = [page for page in map(_picture, rows) if page is not None]
    return [Text("Pages with boxes: {pages}.", pages=_first(pages))] if pages else []


def _first(documents: list[Document]) -> list[Value]:
    """Return the first of many documents; the table has all."""
    more: list[Value] = [Verbatim("…")] if len(documents) > SHOWN else []
    return [*documents[:SHOWN], *more]


def _count(row: Row, column: str) -> Number:
    return Number(known(row[column]), "count", (Ref("predictions", text(row["request"]), column),))


def _picture(row: Row) -> Document | None:
    path = text(row["picture"])
    return Document(path.rpartition("/")[2], path) if path else None
