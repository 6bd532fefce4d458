"""Shortens the report of a benchmark run to half a page for a reader who does not know GPUs."""

from __future__ import annotations

from dataclasses import replace

from nsight_prof.reports.page import Finding, Section, Text
from nsight_prof.reports.profile.method_view import summary_terms
from nsight_prof.reports.studies.models import (
    RESERVATIONS,
    BenchReport,
    BenchSummary,
    actions,
    leading,
)

ANSWERS, ROWS, LEARNED = 2, 8, 6


def bench_summary(view: BenchReport) -> BenchSummary:
    """Return the summary of a report: what its findings say to everybody."""
    findings = _general(view.sections)
    found = _distinct(findings)[: ANSWERS + LEARNED]
    if not found:
        findings = leading(view.sections, 1 + LEARNED)
        found = [finding.verdict for finding in findings]
    to_do = actions(findings)
    rows = tuple(fact for section in view.sections for fact in section.facts)[:ROWS]
    reservations = [caveat.lay_text for caveat in view.caveats if caveat.lay_text][:RESERVATIONS]
    nothing = Text("This run holds nothing that answers the question.")
    summary = BenchSummary(
        title=view.title,
        question=view.question,
        subject=view.subject,
        machine=view.gpu,
        answer=tuple(found[:ANSWERS]) or (nothing,),
        rows=rows,
        to_do=to_do,
        learned=tuple(found[ANSWERS:]),
        reservations=tuple(reservations),
    )
    return replace(summary, terms=summary_terms(summary.words))


def _general(sections: tuple[Section, ...]) -> list[Finding]:
    """Return the leading findings that say something to everybody."""
    general = [
        replace(section, blocks=tuple(f for f in section.findings if not f.technical), children=())
        for section in sections
    ]
    return leading(tuple(general), ANSWERS + LEARNED)


def _distinct(findings: list[Finding]) -> list[Text]:
    """Return what findings say to everybody, once for each kind of sentence."""
    found: dict[str, Text] = {}
    for finding in findings:
        text = finding.lay_verdict or finding.verdict
        found.setdefault(text.message, text)
    return list(found.values())
