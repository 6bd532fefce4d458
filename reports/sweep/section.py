"""The page of a sweep: what the variants take, and what the fastest one saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.reports.page import (
    Bullets,
    Column,
    Evidence,
    Figure,
    Finding,
    Name,
    Number,
    Section,
    Table,
    Text,
    Value,
)
from nsight_prof.reports.page.charts import Stack, StackFigure
from nsight_prof.reports.page.formats import brief
from nsight_prof.reports.page.units import quantity
from nsight_prof.reports.profile.view_models import Fact

LONGEST = 30
"""Characters of a name up to which it heads columns and labels bars."""


@dataclass(frozen=True)
class SweepCell:
    """A kernel, stage or case in one variant; `ratio` is its time over that of the baseline."""

    total_ns: float | None = None
    share: float | None = None
    calls: int | None = None
    ratio: float | None = None
    bound_by: str = ""


@dataclass(frozen=True)
class SweepRow:
    """A kernel (by readable name), stage or case; `cells` follow SweepView.variants."""

    name: str
    cells: tuple[SweepCell, ...]


@dataclass(frozen=True)
class VariantColumn:
    """One variant of a sweep; `ratio` is its GPU time over that of the baseline.

    Of a benchmark, `ratio` is the geometric mean of the times of its cases over those there.
    `settings` are only the keys that differ between variants; `number` is its place among them, by
    which pages call one whose name is long. `per_unit_ns` is its GPU time over
    the units of work that its arguments count, `work` these units over those of the baseline; None
    where they are not known. `problem` says why there are no numbers.
    """

    name: str
    settings: tuple[Fact, ...]
    gpu_time_ns: float | None = None
    wall_ns: float | None = None
    idle_share: float | None = None
    launches: int | None = None
    ratio: float | None = None
    per_unit_ns: float | None = None
    work: float | None = None
    headline: str = ""
    problem: str = ""
    number: int = 1

    @property
    def label(self) -> Text | str:
        """Its name, for headings and pictures; its number where that is long."""
        return self.name if len(self.name) <= LONGEST else Text("variant {n}", n=self.number)

    @property
    def title(self) -> Value:
        """Its settings, for sentences; its name where they are long or do not differ."""
        settings = ", ".join(f"{fact.label} = {fact.value}" for fact in self.settings)
        if settings and len(settings) <= 2 * LONGEST:
            return Name(settings)
        if isinstance(self.label, str):
            return Name(self.name)
        name = Name(brief(self.name, 2 * LONGEST))
        return Text("{variant} ({name})", variant=self.label, name=name)


@dataclass(frozen=True)
class SweepView:
    """Comparison of the variants of a sweep; the first one that has numbers is the baseline.

    `unit` is what a unit of work is called, empty where the variants do the same work or it is not
    known how much. `cases` are those of benchmarks, by id, with the median time per call.
    """

    title: str
    question: str
    unit: str
    variants: tuple[VariantColumn, ...]
    stages: tuple[SweepRow, ...] = ()
    kernels: tuple[SweepRow, ...] = ()
    cases: tuple[SweepRow, ...] = ()


DRAWN = 7
"""Kernels with a colour of their own in the picture."""
SAME = 0.02
"""Variants closer than this are called equal: two runs of one program differ by as much."""


def page_texts(view: SweepView) -> dict[str, Text]:
    """Return what the page says around its section."""
    return {
        "title": Text("{title}: comparison of variants", title=view.title),
        "reports": Text("Reports of the variants:"),
    }


def sweep_section(view: SweepView) -> Section:
    """Return the page of a sweep: which variant is fastest, and what grows."""
    problems = tuple(
        Text("No numbers of {variant}: {problem}.", variant=Name(c.name), problem=c.problem)
        for c in view.variants
        if c.problem
    )
    if len(view.variants) > 1 and not any(c.settings for c in view.variants if not c.problem):
        problems += (Text("The recipes of the variants do not differ."),)
    return Section(
        "sweep",
        Text("Comparison with the first variant"),
        (
            *_findings(view),
            *_figures(view),
            _variant_table(view),
            *_time_tables("stages", Text("Stages"), Text("Stage"), view, view.stages),
            *_time_tables("kernels", Text("Kernels"), Text("Kernel"), view, view.kernels),
            *_time_tables("cases", Text("Cases"), Text("Case"), view, view.cases),
            *((Bullets(Text("Caveats"), problems),) if problems else ()),
        ),
    )


def _variant_table(view: SweepView) -> Table[VariantColumn]:
    def column(heading: Text, field: str, unit: str) -> Column[VariantColumn]:
        return Column(heading, lambda variant: _number(getattr(variant, field), unit))

    per_unit = Text("GPU time per {unit}", unit=view.unit)
    columns = [
        Column[VariantColumn](Text("Variant"), _variant),
        Column[VariantColumn](
            Text("Settings"), lambda v: [f"{f.label} = {f.value}" for f in v.settings] or None
        ),
        column(Text("GPU time"), "gpu_time_ns", "ns"),
        column(Text("Relative to the first"), "ratio", "x"),
        *([column(per_unit, "per_unit_ns", "ns")] if view.unit else []),
        column(Text("Wall time"), "wall_ns", "ns"),
        column(Text("Idle"), "idle_share", "fraction"),
        column(Text("Launches"), "launches", "count"),
        Column[VariantColumn](
            Text("What takes the time"), lambda v: v.problem or v.headline or None
        ),
    ]
    return Table("variants", Text("Variants"), columns, view.variants)


def _variant(variant: VariantColumn) -> Value:
    """Return its name, with the number that the page calls it by where that is long."""
    name = Name(variant.name)
    if isinstance(variant.label, str):
        return name
    return Text("{label}: {name}", label=variant.label, name=name)


def _number(value: float | None, unit: str) -> Number | None:
    return None if value is None else Number(value, unit)


def _time_tables(
    key: str, title: Text, heading: Text, view: SweepView, rows: Sequence[SweepRow]
) -> list[Table[SweepRow]]:
    """Return the times of the variants side by side, and folded their ratios to the first."""

    def columns(field: str, unit: str) -> list[Column[SweepRow]]:
        def of_variant(n: int, variant: VariantColumn) -> Column[SweepRow]:
            heading = Text("{variant}", variant=variant.label)
            return Column(heading, lambda row: _number(getattr(row.cells[n], field), unit))

        first = Column[SweepRow](heading, lambda row: brief(row.name))
        return [first, *(of_variant(*of) for of in enumerate(view.variants))]

    if not rows:
        return []
    bounds = [Column[SweepRow](Text("Bound by"), _bounds)] if key == "kernels" else []
    relative = Text("{what}, relative to the first variant", what=title)
    return [
        Table(key, title, [*columns("total_ns", "ns"), *bounds], rows),
        Table(f"{key}-relative", relative, columns("ratio", "x"), rows, folded=True),
    ]


def _bounds(row: SweepRow) -> list[Value] | None:
    bounds = dict.fromkeys(cell.bound_by for cell in row.cells if cell.bound_by)
    return [LABELS.get(bound, bound) for bound in bounds] or None


def _figures(view: SweepView) -> list[Figure]:
    """Draw the GPU time of each variant, stacked by its kernels."""
    if all(c.gpu_time_ns is None for c in view.variants):
        return []
    ranked = sorted(view.kernels, key=lambda row: -sum(c.total_ns or 0.0 for c in row.cells))
    stacks = []
    for n, variant in enumerate(view.variants):
        times = [row.cells[n].total_ns or 0.0 for row in ranked[:DRAWN]]
        total = variant.gpu_time_ns
        if total is None:
            stacks.append(Stack(variant.label, (), f"n/a: {variant.problem}"))
            continue
        ratio = "" if variant.ratio is None else f" ({quantity(variant.ratio, 'x', 3)})"
        values = (*times, max(total - sum(times), 0.0))
        stacks.append(Stack(variant.label, values, f"{quantity(total, 'ns', 3)}{ratio}"))
    groups = (*(row.name for row in ranked[:DRAWN]), "other kernels")
    title, alt = "GPU time of the variants, by kernel", "Stacked bars: GPU time by kernel"
    return [Figure(StackFigure("sweep", title, alt, "GPU time", groups, tuple(stacks)))]


def _findings(view: SweepView) -> list[Finding]:
    """Say which variants take the least and the most time, and what grows."""
    timed = [c for c in view.variants if c.gpu_time_ns]
    if not timed and any(c.ratio for c in view.variants):
        return [Finding("extremes", _of_cases([c for c in view.variants if c.ratio]))]
    if len(timed) < 2:
        verdict = Text("Fewer than two variants have a trace: nothing to compare.")
        return [Finding("too_few", verdict)]
    totals = [c.gpu_time_ns or 0.0 for c in timed]
    findings = [_extremes(timed, totals, Text("GPU time"))]
    if view.unit:
        each = [c.per_unit_ns or 0.0 for c in timed]
        findings.insert(0, _extremes(timed, each, Text("GPU time per {unit}", unit=view.unit)))
    if _are_equal(totals):
        return findings
    findings += _by_stage(view, timed[totals.index(max(totals))])
    if not view.unit:
        verdict = Text(
            "Variants that do different amounts of work compare per unit of work, not in total."
        )
        findings.append(Finding("work", verdict))
    return findings


def _are_equal(times: Sequence[float]) -> bool:
    return max(times) / min(times) - 1 < SAME


def _extremes(timed: Sequence[VariantColumn], times: Sequence[float], what: Text) -> Finding:
    """Say which variants take the least and the most time, and what that is to the first one."""
    if _are_equal(times):
        verdict = Text("All variants take the same {quantity} within {limit}.", quantity=what,
                       limit=Number(SAME, "fraction"))  # fmt: skip
        return Finding("same", verdict)
    low, high = min(times), max(times)
    fastest, slowest = timed[times.index(low)], timed[times.index(high)]
    verdict = Text(
        "{quantity} is least at {fastest}: {low}, and most at {slowest}: {high}, {ratio} as much.",
        quantity=what, fastest=fastest.title, low=Number(low, "ns", digits=3),
        slowest=slowest.title, high=Number(high, "ns", digits=3),
        ratio=Number(high / low, "x", digits=3),
    )  # fmt: skip
    if fastest is timed[0]:
        return Finding("extremes", verdict)
    saved = Number(1 - low / times[0], "fraction", digits=3)
    label = Text("less than {first}, the first variant:", first=timed[0].title)
    return Finding("extremes", verdict, (Evidence(label, saved),))


def _by_stage(view: SweepView, slowest: VariantColumn) -> list[Finding]:
    """Say how each stage grows, where stages grow differently."""
    n = view.variants.index(slowest)
    grown = {row.name: ratio for row in view.stages if (ratio := row.cells[n].ratio)}
    if len(grown) < 2 or max(grown.values()) / min(grown.values()) - 1 < SAME:
        return []
    stages: list[Value] = [
        Text("{stage} takes {ratio}", stage=Name(name), ratio=Number(ratio, "x", digits=3))
        for name, ratio in grown.items()
    ]
    values: dict[str, Value] = {"variant": slowest.title, "stages": stages}
    verdict = Text("At {variant}, relative to the first variant: {stages}.", **values)
    if slowest.work is not None:
        verdict = Text("At {variant}, with {work} the work of the first variant: {stages}.",
                       work=Number(slowest.work, "x", digits=3), **values)  # fmt: skip
    return [Finding("stages", verdict)]


def _of_cases(variants: Sequence[VariantColumn]) -> Text:
    """Say which benchmarks are fastest and slowest."""
    if len(variants) < 2:
        return Text("Fewer than two variants have cases in common: nothing to compare.")
    ratios = [c.ratio or 0.0 for c in variants]
    if _are_equal(ratios):
        return Text(
            "All variants take the same time within {limit} (geometric mean of the cases that both "
            "measured).", limit=Number(SAME, "fraction"),
        )  # fmt: skip
    low, high = min(ratios), max(ratios)
    return Text(
        "Time is least at {fastest}, {low} that of the first variant, and most at {slowest}, "
        "{high} (geometric mean of the cases that both measured).",
        fastest=variants[ratios.index(low)].title, low=Number(low, "x", digits=3),
        slowest=variants[ratios.index(high)].title, high=Number(high, "x", digits=3),
    )  # fmt: skip
