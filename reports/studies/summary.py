"""Shortens the report of a benchmark run to half a page for a reader who does not know GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nsight_prof.reports.page import Fact, Section, Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.method_view import summary_terms
from nsight_prof.reports.profile.view_models import GlossaryEntry
from nsight_prof.reports.studies.models import BenchReport, leading

ANSWERS, ROWS, LEARNED, RESERVATIONS = 2, 8, 6, 3


@dataclass(frozen=True)
class BenchSummary:
    """What was measured (`rows`), what was `learned`, and what to read with care.

    `others` are the names and files of the same summary in other languages.
    """

    title: str
    question: str
    machine: str
    answer: tuple[Text, ...]
    rows: tuple[Fact, ...]
    learned: tuple[Text, ...]
    reservations: tuple[Text | str, ...]
    terms: tuple[GlossaryEntry, ...]
    others: tuple[tuple[str, str], ...] = ()


def bench_summary(view: BenchReport) -> BenchSummary:
    """Return the summary of a report: what its findings say to everybody."""
    found = _distinct(view.sections)[: ANSWERS + LEARNED]
    if not found:
        found = [finding.verdict for finding in leading(view.sections, 1 + LEARNED)]
    rows = tuple(fact for section in view.sections for fact in section.facts)[:ROWS]
    reservations = [caveat.lay_text for caveat in view.caveats if caveat.lay_text][:RESERVATIONS]
    cells = (value for fact in rows for value in (fact.label, fact.value))
    words = map(Writer().value, (*found, *reservations, *cells))
    nothing = Text("This run holds nothing that answers the question.")
    return BenchSummary(
        title=view.title,
        question=view.question,
        machine=view.gpu,
        answer=tuple(found[:ANSWERS]) or (nothing,),
        rows=rows,
        learned=tuple(found[ANSWERS:]),
        reservations=tuple(reservations),
        terms=summary_terms(" ".join([view.question, *words])),
    )


def _distinct(sections: tuple[Section, ...]) -> list[Text]:
    """Return what the leading findings say to everybody, once for each kind of sentence."""
    general = [
        replace(section, blocks=tuple(f for f in section.findings if not f.technical), children=())
        for section in sections
    ]
    found: dict[str, Text] = {}
    for finding in leading(tuple(general), ANSWERS + LEARNED):
        text = finding.lay_verdict or finding.verdict
        found.setdefault(text.message, text)
    return list(found.values())
