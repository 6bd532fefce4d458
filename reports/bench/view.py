"""Turns a benchmark run into the view model of its report."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from nsight_prof.parsers.cells import records, text
from nsight_prof.reports.bench import conditions as of_cases
from nsight_prof.reports.bench import serving_conditions as of_serving
from nsight_prof.reports.figure_models import Roof
from nsight_prof.reports.figure_views import all_roofs
from nsight_prof.reports.formats import counted
from nsight_prof.reports.load import Run
from nsight_prof.reports.method_view import environment, glossary, method
from nsight_prof.reports.page import Finding, Section, Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.roof_comparison import RoofComparison, compare_roofs, roofs_measured_by
from nsight_prof.reports.studies.registry import left_out, sections
from nsight_prof.reports.view_models import Caveat, Fact, GlossaryEntry, Method

ANSWERS = 6
"""Findings whose sentences make the answer at the top; all stand in their sections."""
EXAMPLES = 3
OF_KERNELS = ("kernels", "launches", "stages", "joins", "counters", "stalls")
"""Tables about kernels, which a report about cases does not show."""
UNSHOWN = ("l1_hit_pct", "l2_hit_pct")
FLOPS = "counted_flops"
"""What kernels without FLOPs have none of either, which is no loss."""
UNCOLLECTED = "not collected: "
SHOWN_AS = {
    "roof_fraction": "No share of the roof",
    FLOPS: "No counted FLOPs",
    "counted_launches": "No counters",
}
"""Column of table `bench` -> what a reader of the report misses."""


@dataclass(frozen=True)
class NotRun:
    """Cases that have no time for one reason; `names` are some of them."""

    status: str
    reason: str
    cases: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class BenchView:
    """The whole report of a benchmark run.

    `answer` are the sentences of the first findings of each section, and `answer_anchors` the ids
    of these sections on the page. `overview` is one line of numbers. `left_out` are sections that
    the cases do not allow, with the reason. `roofs` are all roofs of the run, of every source.
    `protocol` are sentences: how the cases were measured. `data` are (what, markdown link) of files
    with numbers; `noun` is what a measured thing is called. `counted`: some case has counters.
    `doubts` are what a reader must know before using a number.
    """

    title: str
    question: str
    run_id: str
    created: str
    replayed_from: str
    answer: tuple[str, ...]
    answer_anchors: tuple[str, ...]
    overview: tuple[Fact, ...]
    sections: tuple[Section, ...]
    left_out: tuple[Fact, ...]
    doubts: tuple[Caveat, ...]
    not_run: tuple[NotRun, ...]
    roofs: tuple[Roof, ...]
    roof_comparison: tuple[RoofComparison, ...]
    roofs_measured_by: str
    conditions: tuple[Fact, ...]
    environment: tuple[Fact, ...]
    method: Method
    protocol: tuple[str, ...]
    data: tuple[Fact, ...]
    noun: str
    counted: bool
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    gaps: tuple[str, ...]
    glossary: tuple[GlossaryEntry, ...]


def bench_view(run: Run) -> BenchView:
    """Return everything that the report of a benchmark run shows."""
    made = tuple(sections(run))
    roofs = all_roofs(run)
    own = of_serving if of_serving.is_serving(run) else of_cases
    return BenchView(
        title=str(run.manifest.recipe.get("name", "")) or run.manifest.run_id,
        question=str(run.manifest.recipe.get("question", "")),
        run_id=run.manifest.run_id,
        created=run.manifest.created,
        replayed_from=run.manifest.replayed_from,
        answer=answer(made),
        answer_anchors=answer_anchors(made),
        overview=own.overview(run),
        sections=made,
        left_out=_left_out(run, made),
        doubts=own.doubts(run),
        not_run=not_run(run),
        roofs=roofs,
        roof_comparison=compare_roofs(roofs),
        roofs_measured_by=roofs_measured_by(run),
        conditions=own.conditions(run),
        environment=environment(run),
        method=method(run, ()),
        protocol=own.PROTOCOL,
        data=own.DATA,
        noun=own.NOUN,
        counted=bool((run.bench["counted_launches"].fillna(0) > 0).any()),
        assumptions=tuple(run.manifest.assumptions),
        notes=tuple(str(note) for note in run.manifest.recipe.get("notes") or ()),
        gaps=_gaps(run),
        glossary=glossary(section_words(made, own.TERMS)),
    )


def answer(made: tuple[Section, ...]) -> tuple[str, ...]:
    """Return the first findings: of every section in turn, until there are enough."""
    return tuple(Writer().text(finding.verdict) for finding in leading(made, ANSWERS))


def answer_anchors(made: tuple[Section, ...]) -> tuple[str, ...]:
    """Return the id of the section that each sentence of the answer rests on."""
    of = {id(finding): section.key for section in made for finding in section.findings}
    return tuple(f"section-{of[id(finding)]}" for finding in leading(made, ANSWERS))


def leading(made: tuple[Section, ...], most: int) -> list[Finding]:
    """Return at most `most` findings, the first of each section before the second of any.

    Technical findings of a section come after its others.
    """
    room = max(most, len(made))
    ranked = [sorted(section.findings, key=lambda one: one.technical) for section in made]
    chosen: dict[int, list[Finding]] = defaultdict(list)
    for turn in range(max(map(len, ranked), default=0)):
        for place, findings in enumerate(ranked):
            if turn < len(findings) and sum(map(len, chosen.values())) < room:
                chosen[place].append(findings[turn])
    return [finding for place in sorted(chosen) for finding in chosen[place]]


def not_run(run: Run) -> tuple[NotRun, ...]:
    """Return the cases without a time, by status and reason, the most frequent first."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    key = "name" if of_serving.is_serving(run) else "case_id"
    for row in records(run.bench):
        if text(row["status"]) not in ("ok", "counted"):
            groups[text(row["status"]), text(row["reason"])].append(text(row[key]))
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(
        NotRun(status, reason, len(names), tuple(names[:EXAMPLES]))
        for (status, reason), names in ranked
    )


def _left_out(run: Run, made: tuple[Section, ...]) -> tuple[Fact, ...]:
    """Return the sections that there are not, of those that the targets of the run allow."""
    if run.bench.empty:
        return (Fact("All sections", _why_empty(run)),)
    return tuple(Fact(study.title, study.without) for study in left_out(run, made))


def _why_empty(run: Run) -> str:
    step = run.manifest.step("bench")
    if step is not None and step.error:
        return step.error
    reasons = run.gaps[run.gaps["table"] == "bench"]["reason"].tolist()
    return str(reasons[0]) if reasons else "no case was measured"


def _gaps(run: Run) -> tuple[str, ...]:
    """Return why values are missing that a section shows, each reason once.

    Whatever is about kernels stays in table `gaps`: these reports are about cases. So does what the
    recipe chose not to collect, and hit rates, which only confirm roofs; all counters where it
    wants none.
    """
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    bench = run.bench
    uncounted = (run.manifest.recipe.get("counters") or {}).get("enabled") is False
    hidden = (*OF_KERNELS, "metrics") if uncounted else OF_KERNELS
    wanted = bench["flops"].notna() & (bench["counted_launches"].fillna(0) > 0)
    unshown = {*UNSHOWN, *(() if (wanted & bench["counted_flops"].isna()).any() else (FLOPS,))}
    for gap in records(run.gaps):
        table, column, reason = (text(gap[key]) for key in ("table", "column", "reason"))
        if table in hidden or column in unshown or reason.startswith(UNCOLLECTED):
            continue
        if reason:
            groups[SHOWN_AS.get(column, ""), reason].append(text(gap["kernel_id"]))
    return tuple(_gap(what, reason, names) for (what, reason), names in groups.items())


def _gap(what: str, reason: str, names: list[str]) -> str:
    named = [name for name in names if name]
    who = ""
    if named:
        who = f" ({named[0]})" if len(named) == 1 else f" ({counted(len(named), 'case')})"
    return f"{what}{': ' if what else ''}{reason}{who}"


def section_words(made: tuple[Section, ...], always: str = of_cases.TERMS) -> str:
    """Return the words of the sections whose terms the glossary explains, and those of `always`."""
    texts = [part for section in made for part in section.all_parts() if isinstance(part, Text)]
    texts += [finding.verdict for section in made for finding in section.findings]
    texts += [c.heading for section in made for table in section.tables for c in table.columns]
    return " ".join([always, *map(Writer().text, texts)])


__all__ = ["BenchView", "NotRun", "answer", "bench_view", "leading", "not_run", "section_words"]
