"""Joins what the trace and the counters say of each kernel into one row a kernel."""

from __future__ import annotations

import math

import pandas as pd

from parsers import tables
from reports.cells import Row, number, records, text
from reports.load import Run

TRACE_ONLY = (
    *("short_name", "name", "library", "category", "dtype", "tile", "grid", "block", "stage"),
    *("calls", "share", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns"),
)
"""Columns of `kernels` that `counters` does not have under the same name."""


def profiled(run: Run) -> list[Row]:
    """Return a row for each kernel that has counters, most GPU time first.

    Columns are those of `kernels` (identity and time), of `counters`, and `stall_share` (the share
    of the top stall), `join_method` ("mangled", "name" or ""), `total_ns` NaN without a trace.
    """
    shares = _stall_shares(run.stalls)
    methods = _join_methods(run.joins)
    merged = run.counters.merge(run.kernels[["kernel_id", *TRACE_ONLY]], on="kernel_id", how="left")
    rows = records(merged)
    for row in rows:
        row["stall_share"] = shares.get((text(row["kernel_id"]), text(row["top_stall"])), math.nan)
        row["join_method"] = methods.get(text(row["kernel_id"]), "")
    return sorted(rows, key=weight, reverse=True)


def weight(row: Row) -> float:
    """Return the time in ns that ranks a kernel: in the trace, else of the profiled launch."""
    total = number(row["total_ns"])
    return total if not math.isnan(total) else max(0.0, number(row["duration_ns"]))


def sm_count(run: Run) -> float:
    """Return the number of SMs of the GPU, NaN where unknown or where GPUs differ."""
    counts = set(run.gpus["sm_count"].dropna())
    return float(counts.pop()) if len(counts) == 1 else math.nan


def kernel_time(run: Run) -> float:
    """Return the GPU time of all kernels in ns; NaN without a trace."""
    return number(run.kernels["total_ns"].sum(min_count=1))


def _stall_shares(stalls: pd.DataFrame) -> dict[tuple[str, str], float]:
    return {
        (text(row["kernel_id"]), text(row["reason"])): number(row["share"])
        for row in records(stalls)
    }


def _join_methods(joins: pd.DataFrame) -> dict[str, str]:
    chosen = joins[joins["chosen"].fillna(False)]
    return {text(row["kernel_id"]): text(row["method"]) for row in records(chosen)}


def empty_counters(kernel_id: str) -> Row:
    """Return a row of `counters` that knows nothing but its kernel."""
    columns = tables.tables()["counters"]
    return {c.name: None for c in columns} | {"kernel_id": kernel_id}
