"""The studies of measured cases in the order of a report, and that report.

Nothing else imports a study. Targets without a study get the table of reports.studies.any_target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.roof_comparison import compare_roofs, roofs_measured_by
from nsight_prof.reports.cases import conditions as of_cases
from nsight_prof.reports.cases import serving as of_serving
from nsight_prof.reports.page import Section, Text, Value, Verbatim
from nsight_prof.reports.page.frame import LEVELS
from nsight_prof.reports.page.values import Confidence
from nsight_prof.reports.profile.figure_views import all_roofs
from nsight_prof.reports.profile.method_view import environment, glossary, method, section_words
from nsight_prof.reports.profile.view_models import Caveat
from nsight_prof.reports.serving.workload import UNKNOWN_GPU, headed, workload
from nsight_prof.reports.studies import any_target, repeatability, trust
from nsight_prof.reports.studies.comm_roofs import section as comm_roofs
from nsight_prof.reports.studies.gemm_staircase import section as gemm_staircase
from nsight_prof.reports.studies.llm_kernels import section as llm_kernels
from nsight_prof.reports.studies.memory_patterns import section as memory_patterns
from nsight_prof.reports.studies.models import BenchReport
from nsight_prof.reports.studies.network_kernels import section as network_kernels
from nsight_prof.reports.studies.roofline import section as roofline
from nsight_prof.reports.studies.serving_baseline import section as serving_baseline
from nsight_prof.reports.studies.serving_load import section as serving_load


@dataclass(frozen=True)
class Study:
    """A study: `section` returns None where the run has no such cases.

    Attributes:
        target: the benchmark target whose cases it is about; "" for all.
        title, without: what the report calls it, and why it may be missing.
        key: that of its section, where it is not the target.
    """

    section: Callable[[Run], Section | None]
    target: str
    title: Text
    without: Text
    key: str = ""


STUDIES = (
    Study(roofline.section, "roofline", Text("Roofs of this GPU"), Text("no roof was measured")),
    Study(
        memory_patterns.section,
        "memory_patterns",
        Text("Memory as programs see it"),
        Text("no case has an access pattern and a time"),
    ),
    Study(
        gemm_staircase.section,
        "gemm_staircase",
        Text("Shapes of matrix products"),
        Text("no product of the sweep has a time"),
    ),
    Study(
        llm_kernels.section,
        "llm_kernels",
        Text("The operations of a transformer"),
        Text("no operation has a time"),
    ),
    Study(
        network_kernels.section,
        "network_kernels",
        Text("The operations of networks over their sizes"),
        Text("no operation has a time"),
    ),
    Study(
        serving_baseline.section,
        "vllm-baseline",
        Text("How fast the engine serves"),
        Text("no point has a time"),
        "serving_baseline",
    ),
    Study(
        serving_load.section,
        "vllm-serve",
        Text("The server under load"),
        Text("no load has a time"),
        "serving_load",
    ),
    Study(
        comm_roofs.section,
        "comm_roofs",
        Text("Roofs of the links between GPUs"),
        Text("no collective has a time"),
    ),
)
REPEATABILITY = Study(
    repeatability.section,
    "",
    Text("Repeatability"),
    Text("the recipe ran once; prof run RECIPE --repeat 3 shows how well it repeats"),
    "repeatability",
)


def sections(run: Run) -> Iterator[Section]:
    """Yield the sections that the cases of `run` allow, in the order of the report."""
    covered = set()
    for study in STUDIES:
        if (section := study.section(run)) is not None:
            covered.add(study.target)
            yield section
    if (rest := any_target.section(run, covered)) is not None:
        yield rest
    if (repeats := REPEATABILITY.section(run)) is not None:
        yield repeats


def left_out(run: Run, present: Sequence[Section]) -> list[Text]:
    """Return why sections are left out that the targets of the run allow, but not its cases."""
    if not run.bench.empty:
        there = {section.key for section in present}
        targets = {"", *run.bench["target"].dropna()}
        every = (*STUDIES, REPEATABILITY)
        return [
            Text(
                'Section "{title}" is left out: {reason}.', title=study.title, reason=study.without
            )
            for study in every
            if (study.key or study.target) not in there and study.target in targets
        ]
    step = run.manifest.step("bench")
    reasons = run.gaps[run.gaps["table"] == "bench"]["reason"].tolist()
    reason: Value = Text("no case was measured")
    if step is not None and step.error:
        reason = step.error
    elif reasons:
        reason = str(reasons[0])
    return [Text("All sections are left out: {reason}.", reason=reason)]


def bench_report(run: Run) -> BenchReport:
    """Return everything that the report of a benchmark run shows."""
    studies = tuple(sections(run))
    serving = of_serving.is_serving(run)
    kind = of_serving if serving else of_cases
    roofs = all_roofs(run)
    comparison = compare_roofs(roofs)
    lost = trust.not_run(run, "name" if serving else "case_id")
    how = method(run, ())
    recipe, gpu = run.manifest.recipe, of_cases.gpu_name(run)
    return BenchReport(
        title=str(recipe.get("name", "")) or run.manifest.run_id,
        question=str(recipe.get("question", "")),
        run_id=run.manifest.run_id,
        created=run.manifest.created,
        replayed_from=run.manifest.replayed_from,
        gpu=gpu,
        subject=_subject(run, gpu, kind.sure(run)),
        overview=kind.overview(run),
        caveats=(
            *(Caveat(item.text, (), item.lay_text or "") for s in studies for item in s.basis),
            *kind.caveats(run),
        ),
        sections=studies,
        trust=trust.trust_section(
            (*kind.conditions(run), *environment(run)),
            trust.roofs(comparison, roofs, roofs_measured_by(run)),
            trust.gaps(run, lost, left_out(run, studies)),
            trust.method(of_serving.protocol(run) if serving else of_cases.PROTOCOL, run, how),
        ),
        not_run=lost,
        roofs=roofs,
        roof_comparison=comparison,
        method=how,
        data=kind.FILES,
        glossary=glossary(section_words(studies, kind.TERMS)),
    )


def _subject(run: Run, gpu: str, sure: Confidence) -> Text:
    """Return what was measured, on what, and how sure the answer is."""
    name = Text("{name}", name=Verbatim(gpu)) if gpu else UNKNOWN_GPU
    line = headed(workload(run), name)
    return Text("{line} · how sure: {sure}", line=line, sure=LEVELS[sure]) if sure else line
