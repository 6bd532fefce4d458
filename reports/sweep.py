"""Compares the variants of a sweep run: GPU time, stages and kernels side by side."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nsight_prof.parsers.cells import count, known, number, records, text
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.run_dir import VARIANTS, RunDir, read_manifest
from nsight_prof.reports.analysis.stages import ALL, MOST_STAGES, wall_time
from nsight_prof.reports.compare.sides import Side, counted_units, unit_of, units
from nsight_prof.reports.findings.ranking import headline
from nsight_prof.reports.formats import duration, share, speedup
from nsight_prof.reports.load import Run, load_run
from nsight_prof.reports.profiled import kernel_time
from nsight_prof.reports.sweep_cases import SAME, case_answer, case_cells, case_ratios
from nsight_prof.reports.sweep_models import SweepCell, SweepRow, SweepView, VariantColumn
from nsight_prof.reports.view_models import Caveat, Fact

MOST_CASES = 40
"""Cases of benchmarks that the comparison shows: those that take longest."""
TOP_KERNELS = 15
"""Kernels of the comparison: those that took the most time in any variant."""


def sweep_view(path: Path) -> SweepView:
    """Return the comparison of the variants of the sweep run `path`.

    Raises:
        UsageError: the folder is not a run directory.
    """
    manifest = read_manifest(RunDir(path))
    variants = _variants(path)
    runs = {name: run for name, run in variants.items() if isinstance(run, Run)}
    settings = _differing({name: run.manifest.recipe for name, run in runs.items()})
    cases = case_ratios(runs)
    base, per = _baseline(runs), counted_units(runs.values())
    work = {name: units(Side(name, run), per) for name, run in runs.items()} if per else {}
    columns = tuple(
        _column(name, run, settings.get(name, ()), base, work, cases.get(name))
        for name, run in variants.items()
    )
    readable = [(name, runs.get(name)) for name in variants]
    stages = _stage_rows(readable)
    return SweepView(
        title=str(manifest.recipe.get("name", "")) or manifest.run_id,
        question=str(manifest.recipe.get("question", "")),
        answer=tuple(_answer(columns, stages, unit_of(per))),
        unit=unit_of(per),
        variants=columns,
        stages=stages,
        kernels=_kernel_rows(readable),
        cases=_rows([case_cells(run) if run else None for _, run in readable], MOST_CASES),
        caveats=tuple(_caveats(columns, settings)),
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


def _baseline(runs: dict[str, Run]) -> float:
    return kernel_time(next(iter(runs.values()))) if runs else math.nan


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
        return VariantColumn(
            name, settings, None, None, None, None, None, None, None, "", run.message
        )
    total = kernel_time(run)
    wall, idle = wall_time(run)
    lines = () if run.is_bench else headline(run)
    failed = [f"{step.name}: {step.error}" for step in run.manifest.steps if step.error]
    problem = "; ".join(failed) if math.isnan(total) else ""
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
        problem=problem or _lack(run, total, of_cases),
    )


def _lack(run: Run, total: float, of_cases: float | None) -> str:
    if run.is_bench:
        return "no case that the first variant measured, too" if of_cases is None else ""
    return "no kernels in the trace" if math.isnan(total) else ""


def _stage_rows(runs: list[tuple[str, Run | None]]) -> tuple[SweepRow, ...]:
    return _rows([_stage_cells(run) if run else None for _, run in runs], MOST_STAGES)


def _stage_cells(run: Run) -> dict[str, SweepCell]:
    return {
        text(row["stage"]): SweepCell(
            known(row["kernel_ns"]), known(row["share"]), count(row["launches"]), None, ""
        )
        for row in records(run.stages[run.stages["stage"] != ALL])
    }


def _kernel_rows(runs: list[tuple[str, Run | None]]) -> tuple[SweepRow, ...]:
    timed = [run if run and not math.isnan(kernel_time(run)) else None for _, run in runs]
    return _rows([_kernel_cells(run) if run else None for run in timed], TOP_KERNELS)


def _kernel_cells(run: Run) -> dict[str, SweepCell]:
    """Return the kernels by readable name: another size gives another grid and kernel id."""
    bounds = dict(zip(run.counters["kernel_id"], run.counters["bound_by"], strict=True))
    spent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for row in records(run.kernels):
        name, total = text(row["short_name"]), number(row["total_ns"])
        for place, value in enumerate((total, number(row["share"]), number(row["calls"]))):
            sums[name][place] += value
        bound = text(bounds.get(row["kernel_id"]))
        spent[name][bound] += total
    return {
        name: SweepCell(
            known(total),
            known(part),
            count(calls),
            None,
            max(spent[name], key=spent[name].__getitem__),
        )
        for name, (total, part, calls) in sums.items()
    }


def _rows(columns: list[dict[str, SweepCell] | None], most: int) -> tuple[SweepRow, ...]:
    """Return a row a name, largest time in any variant first; None: a variant without numbers."""
    largest: dict[str, float] = defaultdict(float)
    for cells in columns:
        for name, cell in (cells or {}).items():
            largest[name] = max(largest[name], cell.total_ns or 0.0)
    base: dict[str, SweepCell] = next((cells for cells in columns if cells is not None), {})
    names = sorted(largest, key=lambda name: -largest[name])[:most]
    return tuple(
        SweepRow(
            name, tuple(_against((cells or {}).get(name), base.get(name)) for cells in columns)
        )
        for name in names
    )


def _against(cell: SweepCell | None, base: SweepCell | None) -> SweepCell:
    if cell is None:
        return SweepCell(None, None, None, None, "")
    first = base.total_ns if base else None
    ratio = cell.total_ns / first if cell.total_ns is not None and first else None
    return SweepCell(cell.total_ns, cell.share, cell.calls, ratio, cell.bound_by)


def _answer(
    columns: tuple[VariantColumn, ...], stages: tuple[SweepRow, ...], unit: str
) -> list[str]:
    timed = [c for c in columns if c.gpu_time_ns]
    if not timed and any(c.ratio for c in columns):
        return case_answer([(_named(c), c.ratio) for c in columns if c.ratio])
    if len(timed) < 2:
        return ["Fewer than two variants have a trace, so nothing can be compared."]
    totals = [c.gpu_time_ns or 0.0 for c in timed]
    lines = _extremes(timed, totals)
    if unit:
        each = [c.per_unit_ns or 0.0 for c in timed]
        lines = [*_extremes(timed, each, f" per {unit}"), *lines[:1]]
    if _are_equal(totals):
        return lines
    lines += _by_stage(columns, stages, timed[totals.index(max(totals))])
    if not unit:
        lines.append(
            "Variants that do different amounts of work compare per unit of work, not in total."
        )
    return lines


def _are_equal(times: Sequence[float]) -> bool:
    return max(times) / min(times) - 1 < SAME


def _extremes(timed: Sequence[VariantColumn], times: Sequence[float], per: str = "") -> list[str]:
    """Say which variants take the least and the most time, and what that is to the first one."""
    if _are_equal(times):
        return [f"All variants take the same GPU time{per} within {share(SAME)}."]
    least, most = min(times), max(times)
    best, worst = timed[times.index(least)], timed[times.index(most)]
    lines = [
        f"{_named(best)} takes the least GPU time{per}: {duration(least)}; {_named(worst)} the "
        f"most: {duration(most)}, {speedup(most / least)} as much."
    ]
    if best is not timed[0]:
        saved = share(1 - least / times[0])
        lines.append(f"That is {saved} less than {_named(timed[0])}, the first variant.")
    return lines


def _by_stage(
    columns: tuple[VariantColumn, ...], stages: tuple[SweepRow, ...], worst: VariantColumn
) -> list[str]:
    """Say how each stage grows, where stages grow differently."""
    ratios = {row.name: row.cells[columns.index(worst)].ratio for row in stages}
    grown = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    if len(grown) < 2 or max(grown.values()) / min(grown.values()) - 1 < SAME:
        return []
    parts = [f"{name} takes {speedup(ratio)}" for name, ratio in grown.items()]
    work = "" if worst.work is None else f", which does {speedup(worst.work)} the work"
    return [f"At {_named(worst)}{work}, against the first variant: {', '.join(parts)}."]


def _named(column: VariantColumn) -> str:
    settings = ", ".join(f"{fact.label} = {fact.value}" for fact in column.settings)
    return settings or column.name


def _caveats(
    columns: tuple[VariantColumn, ...], settings: dict[str, tuple[Fact, ...]]
) -> list[Caveat]:
    lost = tuple(f"{c.name}: {c.problem}" for c in columns if c.problem)
    found = [Caveat("These variants have no numbers.", lost)] if lost else []
    if not any(settings.values()) and len(columns) > 1:
        found.append(Caveat("The recipes of the variants do not differ.", ()))
    return found
