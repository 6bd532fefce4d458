"""The report of a benchmark run: its sections, and how far to trust them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.roof_comparison import (
    RoofComparison,
    compare_roofs,
    roofs_measured_by,
)
from nsight_prof.reports.cases import conditions as of_cases
from nsight_prof.reports.cases import serving as of_serving
from nsight_prof.reports.page import Fact, Finding, Section, Text
from nsight_prof.reports.page.figure_models import Roof
from nsight_prof.reports.profile.figure_views import all_roofs
from nsight_prof.reports.profile.method_view import environment, glossary, method, section_words
from nsight_prof.reports.profile.view_models import Caveat, GlossaryEntry, Method
from nsight_prof.reports.profile.view_models import Fact as FileFact
from nsight_prof.reports.studies import trust
from nsight_prof.reports.studies.registry import sections
from nsight_prof.reports.studies.trust import NotRun

ANSWERS = 6
"""Findings whose verdicts make the answer at the top; all stand in their sections."""


@dataclass(frozen=True)
class BenchReport:
    """The whole report of a benchmark run.

    `gpu` is its name. `overview` is one line of numbers. `caveats` are what a reader must know
    before using a number. `trust` is the section about conditions, roofs, method and what is
    missing. `roofs` are all roofs of the run, of every source. `data` are (what, markdown link) of
    files with numbers.
    """

    title: str
    question: str
    run_id: str
    created: str
    replayed_from: str
    gpu: str
    overview: tuple[Fact, ...]
    caveats: tuple[Caveat, ...]
    sections: tuple[Section, ...]
    trust: Section
    not_run: tuple[NotRun, ...]
    roofs: tuple[Roof, ...]
    roof_comparison: tuple[RoofComparison, ...]
    method: Method
    data: tuple[FileFact, ...]
    glossary: tuple[GlossaryEntry, ...]

    @property
    def answer(self) -> tuple[Text, ...]:
        """Verdicts of the first findings: of every section in turn, until there are enough."""
        return tuple(finding.verdict for finding in leading(self.sections, ANSWERS))

    @property
    def answer_anchors(self) -> tuple[str, ...]:
        """The id of the section that each sentence of the answer rests on."""
        keys = {id(finding): s.key for s in self.sections for finding in s.findings}
        return tuple(f"section-{keys[id(finding)]}" for finding in leading(self.sections, ANSWERS))


def bench_report(run: Run) -> BenchReport:
    """Return everything that the report of a benchmark run shows."""
    studies = tuple(sections(run))
    serving = of_serving.is_serving(run)
    kind = of_serving if serving else of_cases
    roofs = all_roofs(run)
    comparison = compare_roofs(roofs)
    lost = trust.not_run(run, "name" if serving else "case_id")
    how = method(run, ())
    recipe = run.manifest.recipe
    return BenchReport(
        title=str(recipe.get("name", "")) or run.manifest.run_id,
        question=str(recipe.get("question", "")),
        run_id=run.manifest.run_id,
        created=run.manifest.created,
        replayed_from=run.manifest.replayed_from,
        gpu=of_cases.gpu_name(run),
        overview=kind.overview(run),
        caveats=kind.caveats(run),
        sections=studies,
        trust=trust.trust_section(
            (*kind.conditions(run), *environment(run)),
            trust.roofs(comparison, roofs, roofs_measured_by(run)),
            trust.gaps(run, studies, lost),
            trust.method(kind.PROTOCOL, run, how),
        ),
        not_run=lost,
        roofs=roofs,
        roof_comparison=comparison,
        method=how,
        data=kind.FILES,
        glossary=glossary(section_words(studies, kind.TERMS)),
    )


def leading(studies: Sequence[Section], limit: int) -> list[Finding]:
    """Return at most `limit` findings, the first of each section before the second of any.

    Technical findings of a section come after its others.
    """
    room = max(limit, len(studies))
    ranked = [
        sorted(section.findings, key=lambda finding: finding.technical) for section in studies
    ]
    chosen: dict[int, list[Finding]] = defaultdict(list)
    for turn in range(max(map(len, ranked), default=0)):
        for index, findings in enumerate(ranked):
            if turn < len(findings) and sum(map(len, chosen.values())) < room:
                chosen[index].append(findings[turn])
    return [finding for index in sorted(chosen) for finding in chosen[index]]
