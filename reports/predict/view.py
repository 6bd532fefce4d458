"""The report of a predicted run, of a validation, and of operators that others measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nsight_prof.parsers.cells import text
from nsight_prof.parsers.predict.aiconfigurator import Counted, counted
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Basis, Column, Fact, Name, Section, Table, Text, Verbatim
from nsight_prof.reports.predict import errors, forecast, networks
from nsight_prof.reports.predict.notes import notes_of


@dataclass(frozen=True)
class PredictionView:
    """The whole report: `answer` are sentences, `notes` what was assumed or is not known.

    `asked` is what was predicted: model, gpu, the runs that it rests on, tensor_parallel, memory.
    `subject` is of what load, and how sure; `facts` are for readers who do not know GPUs.
    """

    title: str
    question: Text | None
    run_id: str
    created: str
    asked: Mapping[str, Any]
    answer: tuple[Text, ...]
    sections: tuple[Section, ...]
    notes: tuple[Text, ...]
    subject: Text | None = None
    facts: tuple[Fact, ...] = ()


def prediction_view(run: Run) -> PredictionView:
    """Return everything that the report of a predicted run shows."""
    manifest, subject = run.manifest, forecast.subject(run)
    if not run.predicted_networks.empty:
        subject = forecast.certainty(map(text, run.predicted_networks["tier"]))
        question = Text("How long does a pass of this network take on this GPU?")
        answer, sections = networks.answer(run), networks.sections(run)
    elif run.prediction_errors.empty:
        question = Text("How fast will this model serve on this GPU?")
        answer, sections = forecast.answer(run), forecast.sections(run)
    else:
        question = Text("How far do predictions lie from what was measured?")
        answer = errors.answer(run.prediction_errors)
        sections = errors.sections(run.prediction_errors)
    return PredictionView(
        title=text(manifest.recipe.get("name")) or manifest.run_id,
        question=question,
        run_id=manifest.run_id,
        created=manifest.created,
        asked=manifest.recipe.get("predict") or {},
        answer=tuple(answer),
        sections=(replace(sections[0], basis=tuple(map(Basis, answer))), *sections[1:]),
        notes=notes_of(run),
        subject=subject,
        facts=forecast.facts(run),
    )


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
