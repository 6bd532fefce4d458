"""Makes the report of a benchmark run."""

from __future__ import annotations

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.roof_comparison import (
    compare_roofs,
    roofs_measured_by,
)
from nsight_prof.reports.cases import conditions as of_cases
from nsight_prof.reports.cases import serving as of_serving
from nsight_prof.reports.profile.figure_views import all_roofs
from nsight_prof.reports.profile.method_view import environment, glossary, method, section_words
from nsight_prof.reports.studies import trust
from nsight_prof.reports.studies.models import BenchReport
from nsight_prof.reports.studies.registry import left_out, sections

ANSWERS = 6
"""Findings whose verdicts make the answer at the top; all stand in their sections."""


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
            trust.gaps(run, lost, left_out(run, studies)),
            trust.method(kind.PROTOCOL, run, how),
        ),
        not_run=lost,
        roofs=roofs,
        roof_comparison=comparison,
        method=how,
        data=kind.FILES,
        glossary=glossary(section_words(studies, kind.TERMS)),
    )
