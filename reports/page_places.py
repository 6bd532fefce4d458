"""Lists what the page of a run shows, so that evidence leads to rows that are there."""

from __future__ import annotations

import pandas as pd

from reports.cells import Row, known, records, text
from reports.figure_views import all_roofs
from reports.gemm import paddings
from reports.load import Run
from reports.places import (
    CALLS,
    COSTS,
    ENVIRONMENT,
    IDLE,
    KERNELS,
    KINDS,
    LIMITS,
    OPERATIONS,
    PEAKS,
    PRODUCTS,
    ROOFS,
    SAVED,
    STAGES,
    Places,
    kernel_anchors,
    roof_anchor,
    row_anchors,
)
from reports.profiled import kernel_time
from reports.program_findings import FEW
from reports.provenance import shown_columns
from reports.time_models import IdleRow, KindTable, StageRow
from reports.time_views import host_costs
from reports.view_models import KernelRow


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
    )


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
        SAVED: any(row.bound_by for row in kernels),
        LIMITS: timed and not run.counters.empty,
        ROOFS: profiled and not run.roofs.empty,
        PRODUCTS: bool(paddings(run)),
        ENVIRONMENT: True,
    }
    return [anchor for anchor, shown in there.items() if shown]


def _saved(kernels: tuple[KernelRow, ...]) -> list[str]:
    return [f"{SAVED}-{row.number}" for row in kernels if row.bound_by]
