"""The report of a predicted run, and that of a validation."""

from __future__ import annotations

from dataclasses import dataclass

from nsight_prof.parsers.cells import text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page.markdown import section_markdown
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.predict import errors, forecast


@dataclass(frozen=True)
class PredictionView:
    """The whole report: `answer` are sentences, `notes` what was assumed or is not known.

    `sections` are markdown.
    """

    title: str
    question: str
    run_id: str
    created: str
    answer: tuple[str, ...]
    sections: tuple[str, ...]
    notes: tuple[str, ...]


def prediction_view(run: Run) -> PredictionView:
    """Return everything that the report of a predicted run shows."""
    manifest = run.manifest
    if run.prediction_errors.empty:
        question = text(manifest.recipe.get("question"))
        answer, sections = forecast.answer(run), forecast.sections(run)
    else:
        question = "How far do predictions lie from what was measured?"
        answer = errors.answer(run.prediction_errors)
        sections = errors.sections(run.prediction_errors)
    return PredictionView(
        title=text(manifest.recipe.get("name")) or manifest.run_id,
        question=question,
        run_id=manifest.run_id,
        created=manifest.created,
        answer=tuple(map(Writer().text, answer)),
        sections=tuple(map(section_markdown, sections)),
        notes=tuple(manifest.assumptions),
    )
