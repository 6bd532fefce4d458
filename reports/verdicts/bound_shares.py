"""Divides the GPU time by what limits it: per stage, roof and number type, weighted by time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pandas as pd

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.gpu_times import gpu_count
from nsight_prof.reports.analysis.profiled import kernel_time, profiled
from nsight_prof.reports.analysis.stages import ALL, stage_rows, wall_time
from nsight_prof.reports.findings.kernels.judge import judge
from nsight_prof.reports.findings.model import BoundShare

PIPES = ("tensor", "fp32", "fp64", "fp16")
IDLE, UNMEASURED = "launch", "unmeasured"


@dataclass
class _Sum:
    """Time in ns, weighted sum of the reached share, ns to save, and kernels of one row."""

    time: float = 0.0
    reached: float = 0.0
    saved: float = 0.0
    kernels: set[str] = field(default_factory=set)


def bound_shares(run: Run) -> tuple[BoundShare, ...]:
    """Return the rows of the whole run and of each stage; empty without trace or counters."""
    if math.isnan(kernel_time(run)) or run.counters.empty:
        return ()
    counters = {text(row["kernel_id"]): row for row in profiled(run)}
    for judged in judge(run):
        counters[text(judged.row["kernel_id"])]["gain"] = judged.gain
    wall, idle = wall_time(run)
    capture = {"stage": ALL, "wall_ns": wall, "idle_ns": idle, "gpus": gpu_count(run)}
    found = _rows(capture, run.kernels[["kernel_id", "total_ns"]], counters)
    stages = [row for row in stage_rows(run) if row["stage"] != ALL]
    for stage in stages if len(stages) > 1 else []:
        kernels = run.stage_kernels[run.stage_kernels["stage"] == text(stage["stage"])]
        found += _rows(stage, kernels[["kernel_id", "total_ns"]], counters)
    return tuple(found)


def _rows(stage: Row, times: pd.DataFrame, counters: dict[str, Row]) -> list[BoundShare]:
    sums: dict[tuple[str, str], _Sum] = {}
    for row in records(times):
        key, time_ns = text(row["kernel_id"]), number(row["total_ns"])
        counted = counters.get(key, {})
        bound = text(counted.get("bound_by")) or UNMEASURED
        part_sum = sums.setdefault((bound, _dtype(bound, counted)), _Sum())
        part_sum.time += time_ns
        part_sum.reached += time_ns * number(counted.get("roof_share"))
        part_sum.saved += time_ns * number(counted.get("gain"))
        part_sum.kernels.add(key)
    total = sum(part_of_bound.time for part_of_bound in sums.values())
    ranked = sorted(sums.items(), key=lambda item: (item[0][0] == UNMEASURED, -item[1].time))
    found = [_row(stage, key, part_of_bound, total) for key, part_of_bound in ranked if total > 0]
    idle = known(number(stage["idle_ns"]) / number(stage["wall_ns"])) if _wall(stage) else None
    if idle:
        label = "nothing to do (launches, host)"
        found.append(BoundShare(text(stage["stage"]), IDLE, label, "", None, idle, None, None, 0))
    return found


def _row(stage: Row, key: tuple[str, str], part_of_bound: _Sum, total: float) -> BoundShare:
    bound, dtype = key
    reached = known(part_of_bound.reached / part_of_bound.time) if part_of_bound.time > 0 else None
    return BoundShare(
        stage=text(stage["stage"]),
        bound=bound,
        label=LABELS.get(bound, "not measured"),
        dtype=dtype,
        share=part_of_bound.time / total,
        of_wall=part_of_bound.time / number(stage["gpus"]) / number(stage["wall_ns"])
        if _wall(stage)
        else None,
        reached=reached,
        gain=known(part_of_bound.saved / total),
        kernels=len(part_of_bound.kernels),
    )


def _wall(stage: Row) -> bool:
    return number(stage["wall_ns"]) > 0


def _dtype(bound: str, row: Row) -> str:
    """Return the type of the arithmetic that limits; "" where it is not arithmetic."""
    if bound not in PIPES:
        return ""
    return text(row.get("tensor_dtype")) or text(row.get("dtype")) if bound == "tensor" else bound
