"""Lists what the page of a run shows, so that evidence leads to rows that are there."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from nsight_prof.parsers.cells import Row, known, records, text
from nsight_prof.reports.figure_views import all_roofs
from nsight_prof.reports.findings.program.overview import FEW
from nsight_prof.reports.gemm import paddings
from nsight_prof.reports.load import Run
from nsight_prof.reports.places import (
    CALLS,
    COSTS,
    ENVIRONMENT,
    IDLE,
    KERNELS,
    KINDS,
    LIMITS,
    MEAN,
    OPERATIONS,
    PEAKS,
    PRODUCTS,
    ROOFS,
    SAVED,
    STAGES,
    Places,
    idle_anchor,
    kernel_anchors,
    roof_anchor,
    row_anchors,
    stage_anchor,
)
from nsight_prof.reports.profiled import kernel_time
from nsight_prof.reports.provenance import shown_columns
from nsight_prof.reports.time_models import IdleRow, KindTable, StageRow
from nsight_prof.reports.time_views import host_costs
from nsight_prof.reports.view_models import KernelRow

TRACED_NUMBERS = {
    "total_ns": ("calls", "total_ns"),
    "median_ns": ("median_ns", "mean_ns", "min_ns", "max_ns", "std_ns"),
}
"""Row of a kernel's section -> what it shows of the trace."""


def page_places(
    run: Run,
    kernels: tuple[KernelRow, ...],
    stages: tuple[StageRow, ...],
    idle: tuple[IdleRow, ...],
    kinds: KindTable | None,
) -> Places:
    """Return the rows and tables that the page of `run` shows."""
    stalled = {text(key) for key in run.stalls["kernel_id"]}
    counted = {text(row["kernel_id"]): row for row in records(run.counters)}
    tables = {"kernels": (run.kernels, "kernel_id"), "stages": (run.stages, "stage")}
    profiled = any(row.profiled for row in kernels)
    roofs = {f"{r.label} {r.source}": {"value": r.value} for r in all_roofs(run) if profiled}
    return Places(
        kernels={row.kernel_id: row.number for row in kernels},
        numbers={key: _rows(row, key in stalled) for key, row in counted.items()},
        anchors=frozenset(
            (
                *row_anchors(stages, idle),
                *_tables(run, kernels, stages, idle),
                *_saved(kernels),
                *(roof_anchor(label) for label in roofs),
            )
        ),
        idle=idle,
        kinds=kinds,
        values={
            **{name: _values(frame, key) for name, (frame, key) in tables.items()},
            "roofs": roofs,
        },
        shown=_shown(kernels, stages, idle, counted),
    )


def _shown(
    kernels: tuple[KernelRow, ...],
    stages: tuple[StageRow, ...],
    idle: tuple[IdleRow, ...],
    counted: Mapping[str, Row],
) -> dict[str, tuple[float, ...]]:
    """Return the numbers of rows by their ids; of the limits those of all kernels of each."""
    found = {stage_anchor(row.stage, "stage"): _numbers(vars(row)) for row in stages}
    found |= {idle_anchor(row): _numbers(vars(row)) for row in idle}
    for row in kernels:
        section = f"kernel-{row.number}-"
        found |= {
            section + key: _numbers({key: v}) for key, v in counted.get(row.kernel_id, {}).items()
        }
        for key, columns in TRACED_NUMBERS.items():
            found[section + key] = _numbers({c: getattr(row, c) for c in columns})
    clocks = [(r.share, r.sm_clock_hz) for r in kernels if r.profiled]
    pairs = [(part, clock) for part, clock in clocks if part and clock]
    if pairs:
        found[MEAN] = (sum(p * c for p, c in pairs) / sum(p for p, _ in pairs),)
    bounds = {row.bound_by for row in kernels if row.bound_by}
    found[LIMITS] = tuple(
        sum(getattr(row, part) or 0.0 for row in kernels if row.bound_by == bound)
        for bound in bounds
        for part in ("share", "gain_program")
    )
    return found


def _numbers(row: Mapping[str, object]) -> tuple[float, ...]:
    numbers = (v for v in row.values() if isinstance(v, int | float))
    return tuple(v for one in numbers if (v := known(one)) is not None)


def _values(frame: pd.DataFrame, key: str) -> dict[str, dict[str, float]]:
    """Return the known numbers of each row of a table."""
    numbers = frame.select_dtypes("number").columns
    return {
        text(row[key]): {c: v for c in numbers if (v := known(row[c])) is not None}
        for row in records(frame)
    }


def _rows(row: Row, stalls: bool) -> frozenset[str]:
    return kernel_anchors(shown_columns(row), stalls)


def _tables(
    run: Run,
    kernels: tuple[KernelRow, ...],
    stages: tuple[StageRow, ...],
    idle: tuple[IdleRow, ...],
) -> list[str]:
    profiled = any(row.profiled for row in kernels)
    timed = known(kernel_time(run)) is not None
    there = {
        KERNELS: bool(kernels),
        KINDS: timed and len(run.kernels) > FEW,
        STAGES: bool(stages),
        IDLE: bool(idle),
        OPERATIONS: not run.memory_operations.empty,
        CALLS: not run.api_calls.empty,
        COSTS: bool(host_costs(run)) and not (run.api_calls.empty and run.memory_operations.empty),
        PEAKS: profiled,
        MEAN: any(row.profiled and row.share and row.sm_clock_hz for row in kernels),
        SAVED: any(row.bound_by for row in kernels),
        LIMITS: timed and not run.counters.empty,
        ROOFS: profiled and not run.roofs.empty,
        PRODUCTS: bool(paddings(run)),
        ENVIRONMENT: True,
    }
    return [anchor for anchor, shown in there.items() if shown]


def _saved(kernels: tuple[KernelRow, ...]) -> list[str]:
    return [f"{SAVED}-{row.number}" for row in kernels if row.bound_by]
