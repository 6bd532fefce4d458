"""Compares the variants of a sweep: GPU time, stages, kernels and cases against the first."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.cells import count, known, number, records, text
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.run.directory import VARIANTS, RunDir, read_manifest
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.stages import ALL, MOST_STAGES, wall_time
from nsight_prof.reports.compare.cases import case_changes, geometric_mean, timed_cases
from nsight_prof.reports.compare.sides import Side, counted_units, unit_of, units
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
from nsight_prof.reports.verdicts.ranking import headline

MAX_CASES = 40
"""Cases of benchmarks that the comparison shows: those that take longest."""
MAX_KERNELS = 15
"""Kernels of the comparison: those that took the most time in any variant."""
DRAWN = 7
"""Kernels with a colour of their own in the picture."""
SAME = 0.02
"""Variants closer than this are called equal: two runs of one program differ by as much."""


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
    `settings` are only the keys that differ between variants. `per_unit_ns` is its GPU time over
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

    @property
    def title(self) -> Name:
        """Its settings, or its name where these do not differ."""
        settings = ", ".join(f"{fact.label} = {fact.value}" for fact in self.settings)
        return Name(settings or self.name)


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


def sweep_view(path: Path) -> SweepView:
    """Return the comparison of the variants of the sweep run `path`.

    Raises:
        UsageError: the folder is not a run directory.
    """
    manifest = read_manifest(RunDir(path))
    variants = _variants(path)
    runs = {name: run for name, run in variants.items() if isinstance(run, Run)}
    settings = _differing({name: run.manifest.recipe for name, run in runs.items()})
    ratios = _case_ratios(runs)
    base = kernel_time(next(iter(runs.values()))) if runs else math.nan
    per = counted_units(runs.values())
    work = {name: units(Side(name, run), per) for name, run in runs.items()} if per else {}
    columns = tuple(
        _column(name, run, settings.get(name, ()), base, work, ratios.get(name))
        for name, run in variants.items()
    )
    readable = [runs.get(name) for name in variants]
    timed = [run if run and not math.isnan(kernel_time(run)) else None for run in readable]
    return SweepView(
        title=str(manifest.recipe.get("name", "")) or manifest.run_id,
        question=str(manifest.recipe.get("question", "")),
        unit=unit_of(per),
        variants=columns,
        stages=_rows([_stage_cells(run) if run else None for run in readable], MOST_STAGES),
        kernels=_rows([_kernel_cells(run) if run else None for run in timed], MAX_KERNELS),
        cases=_rows([_case_cells(run) if run else None for run in readable], MAX_CASES),
    )


def _variants(path: Path) -> dict[str, Run | ProfError]:
    """Open every variant; one that cannot be opened is there with its error."""
    found: dict[str, Run | ProfError] = {}
    for name in read_manifest(RunDir(path)).variants:
        try:
            found[name] = load_run(path / VARIANTS / name)
        except ProfError as error:
            found[name] = error
    return found


def _differing(recipes: dict[str, dict[str, Any]]) -> dict[str, tuple[Fact, ...]]:
    """Return for each variant the recipe keys (dotted) whose values differ between variants."""
    flat = {name: _flatten(recipe) for name, recipe in recipes.items()}
    keys = sorted({key for values in flat.values() for key in values} - {"name", "sweep"})
    differing = [k for k in keys if len({repr(v.get(k)) for v in flat.values()}) > 1]
    return {
        name: tuple(Fact(key, str(values.get(key, "-"))) for key in differing)
        for name, values in flat.items()
    }


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return flat


def _case_ratios(runs: Mapping[str, Run]) -> dict[str, float]:
    """Return the times of each benchmark over those of the first, by variant.

    Geometric mean of the cases that both measured; a variant without any is left out.
    """
    sides = [Side(name, run) for name, run in runs.items() if run.is_bench]
    means = {side.label: geometric_mean(case_changes(sides[0], side, 0.0)) for side in sides}
    return {name: mean.ratio for name, mean in means.items() if mean and mean.ratio}


def _column(
    name: str,
    run: Run | ProfError,
    settings: tuple[Fact, ...],
    base: float,
    work: Mapping[str, float],
    of_cases: float | None,
) -> VariantColumn:
    """Return a variant; `base` is the GPU time of the first in ns, `work` the units of each.

    `of_cases` are the times of its cases over those of the first, where it is a benchmark.
    """
    if isinstance(run, ProfError):
        return VariantColumn(name, settings, problem=run.message)
    total, (wall, idle) = kernel_time(run), wall_time(run)
    lines = () if run.is_bench else headline(run)
    problem = ""
    if math.isnan(total):
        errors = [f"{step.name}: {step.error}" for step in run.manifest.steps if step.error]
        problem = "; ".join(errors)
        if run.is_bench and of_cases is None:
            problem = problem or "no case that the first variant measured, too"
        elif not run.is_bench:
            problem = problem or "no kernels in the trace"
    return VariantColumn(
        name=name,
        settings=settings,
        gpu_time_ns=known(total),
        wall_ns=known(wall),
        idle_share=known(idle / wall) if wall > 0 else None,
        launches=count(run.kernels["calls"].sum(min_count=1)),
        ratio=known(total / base) if base > 0 else of_cases,
        per_unit_ns=known(total / work[name]) if work else None,
        work=work[name] / next(iter(work.values())) if work else None,
        headline=lines[0] if lines else "",
        problem=problem,
    )


def _stage_cells(run: Run) -> dict[str, SweepCell]:
    return {
        text(row["stage"]): SweepCell(
            known(row["kernel_ns"]), known(row["share"]), count(row["launches"])
        )
        for row in records(run.stages[run.stages["stage"] != ALL])
    }


def _kernel_cells(run: Run) -> dict[str, SweepCell]:
    """Return the kernels by readable name: another size gives another grid and kernel id."""
    bounds = dict(zip(run.counters["kernel_id"], run.counters["bound_by"], strict=True))
    time_by_bound: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for row in records(run.kernels):
        name = text(row["short_name"])
        values = [number(row[column]) for column in ("total_ns", "share", "calls")]
        sums[name] = [a + b for a, b in zip(sums[name], values, strict=True)]
        time_by_bound[name][text(bounds.get(row["kernel_id"]))] += values[0]
    return {
        name: SweepCell(
            known(total),
            known(share),
            count(calls),
            bound_by=max(time_by_bound[name], key=time_by_bound[name].__getitem__),
        )
        for name, (total, share, calls) in sums.items()
    }


def _case_cells(run: Run) -> dict[str, SweepCell]:
    """Return the median time per call of each case that was measured, by its id."""
    return {
        key: SweepCell(known(1e9 * number(row["median_s"])))
        for key, row in timed_cases(run).items()
    }


def _rows(columns: Sequence[dict[str, SweepCell] | None], limit: int) -> tuple[SweepRow, ...]:
    """Return one row per name, largest time in any variant first; None: a variant without any."""
    largest: dict[str, float] = defaultdict(float)
    for cells in columns:
        for name, cell in (cells or {}).items():
            largest[name] = max(largest[name], cell.total_ns or 0.0)
    base = next((cells for cells in columns if cells is not None), {})
    return tuple(
        SweepRow(
            name, tuple(_with_ratio((cells or {}).get(name), base.get(name)) for cells in columns)
        )
        for name in sorted(largest, key=lambda name: -largest[name])[:limit]
    )


def _with_ratio(cell: SweepCell | None, base: SweepCell | None) -> SweepCell:
    if cell is None:
        return SweepCell()
    first = base.total_ns if base else None
    ratio = cell.total_ns / first if cell.total_ns is not None and first else None
    return SweepCell(cell.total_ns, cell.share, cell.calls, ratio, cell.bound_by)


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
        Column[VariantColumn](Text("Variant"), lambda variant: Name(variant.name)),
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


def _number(value: float | None, unit: str) -> Number | None:
    return None if value is None else Number(value, unit)


def _time_tables(
    key: str, title: Text, heading: Text, view: SweepView, rows: Sequence[SweepRow]
) -> list[Table[SweepRow]]:
    """Return the times of the variants side by side, and folded their ratios to the first."""

    def columns(field: str, unit: str) -> list[Column[SweepRow]]:
        found: list[Column[SweepRow]] = [Column(heading, lambda row: brief(row.name))]
        for n, variant in enumerate(view.variants):

            def cell(row: SweepRow, n: int = n) -> Number | None:
                return _number(getattr(row.cells[n], field), unit)

            found.append(Column(Text("{variant}", variant=variant.name), cell))
        return found

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
            stacks.append(Stack(variant.name, (), f"n/a: {variant.problem}"))
            continue
        ratio = "" if variant.ratio is None else f" ({quantity(variant.ratio, 'x', 3)})"
        values = (*times, max(total - sum(times), 0.0))
        stacks.append(Stack(variant.name, values, f"{quantity(total, 'ns', 3)}{ratio}"))
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
