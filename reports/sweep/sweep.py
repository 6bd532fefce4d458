"""Compares the variants of a sweep: GPU time, stages, kernels and cases against the first."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from nsight_prof.parsers.cells import count, known, number, records, text
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.run.directory import Manifest
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.run.sentences import joined
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.stages import ALL, MOST_STAGES, wall_time
from nsight_prof.reports.compare.cases import case_changes, geometric_mean, timed_cases
from nsight_prof.reports.compare.sides import Side, counted_units, unit_of, units
from nsight_prof.reports.profile.view_models import Fact
from nsight_prof.reports.sweep.section import SweepCell, SweepRow, SweepView, VariantColumn
from nsight_prof.reports.verdicts.ranking import headline

MAX_CASES = 40
"""Cases of benchmarks that the comparison shows: those that take longest."""
MAX_KERNELS = 15
"""Kernels of the comparison: those that took the most time in any variant."""
TEXTS = {"name", "question", "notes", "sweep"}
"""Keys of a recipe that set nothing of what runs."""


def sweep_view(manifest: Manifest, variants: Mapping[str, Run | ProfError]) -> SweepView:
    """Return the comparison of the variants of a sweep, of which some could not be read."""
    runs = {name: run for name, run in variants.items() if isinstance(run, Run)}
    settings = _differing({name: run.manifest.recipe for name, run in runs.items()})
    ratios = _case_ratios(runs)
    base = kernel_time(next(iter(runs.values()))) if runs else math.nan
    per = counted_units(runs.values())
    work = {name: units(Side(name, run), per) for name, run in runs.items()} if per else {}
    columns = tuple(
        _column(name, nth, run, settings.get(name, ()), base, work, ratios.get(name))
        for nth, (name, run) in enumerate(variants.items(), 1)
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


def _differing(recipes: dict[str, dict[str, Any]]) -> dict[str, tuple[Fact, ...]]:
    """Return for each variant the recipe keys (dotted) whose values differ between variants."""
    flat = {name: _flatten(recipe) for name, recipe in recipes.items()}
    keys = sorted({key for values in flat.values() for key in values} - TEXTS)
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
    nth: int,
    run: Run | ProfError,
    settings: tuple[Fact, ...],
    base: float,
    work: Mapping[str, float],
    of_cases: float | None,
) -> VariantColumn:
    """Return the nth variant; `base` is the GPU time of the first in ns, `work` their units.

    `of_cases` are the times of its cases over those of the first, where it is a benchmark.
    """
    if isinstance(run, ProfError):
        return VariantColumn(name, settings, problem=run.message, number=nth)
    total, (wall, idle) = kernel_time(run), wall_time(run)
    lines = () if run.is_bench else headline(run)
    problem = ""
    if math.isnan(total):
        errors = [f"{step.name}: {step.error}" for step in run.manifest.steps if step.error]
        problem = joined("; ", errors)
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
        number=nth,
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
