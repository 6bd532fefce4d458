"""Joins the operator view, the trace and the model's shape for a run of each stage."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nsight_prof.parsers.cells import Row, count, grouped, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.operators.products import (
    Operator,
    Product,
    Stage,
    View,
    products,
)
from nsight_prof.reports.engine.stages.kinds import Kind, Stages, stages_of

ALL = "(all)"
FLOPS = "FLOPs of matrix products"
ALL_KERNELS = "time of all kernels"
ATTENTION = "time of attention"
"""Quantities of views."""
EXCESS = 0.1
"""Part by which the operator view's kernel time may exceed the trace's without a sentence."""


def stages_of_operators(run: Run) -> tuple[Stage, ...]:
    """Return the stages of the operator view that had GPU work, the most of it first."""
    steps = stages_of(run)
    by_stage = grouped(records(run.operators), lambda row: text(row["stage"]))
    times = {stage: sum(number(r["gpu_ns"]) for r in rows) for stage, rows in by_stage.items()}
    order = sorted((stage for stage, time in times.items() if time > 0), key=lambda s: -times[s])
    return tuple(_stage(run, stage, by_stage[stage], steps) for stage in order)


def excess_operator(stage: Stage) -> Operator | None:
    """Return the operator that took most more time than its kernel in the trace.

    None where the operator view took about as long as the trace.
    """
    view = stage.view(ALL_KERNELS)
    if view is None or not view.operators > (1 + EXCESS) * view.kernels:
        return None
    operator = max(stage.operators, key=lambda operator: operator.excess_ns)
    return operator if operator.excess_ns > 0 else None


@dataclass(frozen=True)
class _Traced:
    """A run of a stage in the trace; times of kernels by the names that readers know."""

    runs: int
    kernel_ns: float
    launches: float
    by_name: Mapping[str, float]


def _stage(run: Run, stage: str, rows: Sequence[Row], steps: Stages | None) -> Stage:
    profiled_runs = max((count(row["instances"]) or 0 for row in rows), default=0) or 1
    traced = _traced(run, stage)
    gemms = [row for row in records(run.gemms) if text(row["stage"]) == stage]
    counters = {text(row["kernel_id"]): row for row in records(run.counters)}
    found = products(gemms, counters, profiled_runs, traced.runs)
    attends = run.kernels[run.kernels["category"] == "attention"]
    kind = steps.kind(stage) if steps else None
    return Stage(
        stage,
        found,
        _operators(rows, profiled_runs, traced.by_name),
        _views(stage, found, rows, profiled_runs, traced, set(attends["short_name"]), steps, kind),
        traced.kernel_ns,
        traced.runs,
        tuple(attends["kernel_id"]),
    )


def _traced(run: Run, stage: str) -> _Traced:
    """Return the stage in the trace; the whole trace for work outside of stages, if it has none."""
    stages = {text(row["stage"]): row for row in records(run.stages)}
    row = stages.get(stage) if stage else stages.get(ALL) if len(stages) == 1 else None
    runs = (count(row["instances"]) or 1) if row else 1
    names = dict(zip(run.kernels["kernel_id"], run.kernels["short_name"], strict=True))
    by_name: dict[str, float] = defaultdict(float)
    for kernel in records(run.stage_kernels):
        if text(kernel["stage"]) == stage:
            name = text(names.get(text(kernel["kernel_id"])))
            by_name[name] += number(kernel["total_ns"]) / runs
    kernel_ns = number(row["kernel_ns"]) / runs if row else math.nan
    return _Traced(runs, kernel_ns, number(row["launches"]) / runs if row else math.nan, by_name)


def _operators(rows: Sequence[Row], runs: int, traced: Mapping[str, float]) -> tuple[Operator, ...]:
    total = sum(number(row["gpu_ns"]) for row in rows)
    found = [
        Operator(
            name=text(row["operator"]),
            shapes=text(row["input_shapes"]),
            calls=(known(row["calls"]) or number(row["launches"])) / runs,
            gpu_ns=number(row["gpu_ns"]) / runs,
            self_cpu_ns=number(row["self_cpu_ns"]) / runs,
            kernel=text(row["kernel"]),
            share=number(row["gpu_ns"]) / total if total else math.nan,
            traced_ns=traced.get(text(row["kernel"]), 0.0),
        )
        for row in rows
    ]
    return tuple(sorted(found, key=lambda operator: -operator.gpu_ns))


def _views(
    stage: str,
    found: Sequence[Product],
    rows: Sequence[Row],
    runs: int,
    traced: _Traced,
    attention: set[str],
    steps: Stages | None,
    kind: Kind | None,
) -> tuple[View, ...]:
    """Return what more than one view has of a run; `rows` are of table `operators`."""
    multiplying = [row for row in rows if known(row["m"]) is not None]
    attending = [row for row in rows if text(row["kernel"]) in attention]
    shapes = {(p.module, p.m, p.n, p.k, p.batch, p.dtype): p for p in found}.values()
    flops, weights, attention_ns = _by_model(steps, kind)
    floor = _sum(p.total_ns * p.fraction for p in found)
    attention_traced = sum(time for name, time in traced.by_name.items() if name in attention)

    def mean(column: str, of: Sequence[Row]) -> float:
        return sum(number(row[column]) for row in of) / runs

    views = [
        View(stage, FLOPS, "FLOP", flops, mean("flops", multiplying),
             _sum(p.calls * p.hardware_flops for p in found)),
        View(stage, "weights that they read", "B", weights,
             _sum(p.operator_calls * p.weight_bytes for p in shapes),
             _sum(p.calls * p.dram_read for p in found)),
        View(stage, "time of matrix products", "ns", floor, mean("gpu_ns", multiplying),
             _sum(p.total_ns for p in found)),
        View(stage, ATTENTION, "ns", attention_ns, mean("gpu_ns", attending),
             attention_traced if traced.by_name else math.nan),
        View(stage, ALL_KERNELS, "ns", math.nan, mean("gpu_ns", rows), traced.kernel_ns),
        View(stage, "kernels", "", math.nan, mean("launches", rows), traced.launches),
    ]  # fmt: skip
    return tuple(view for view in views if view.operators > 0 or view.kernels > 0)


def _by_model(steps: Stages | None, kind: Kind | None) -> tuple[float, float, float]:
    """Return FLOPs and weight bytes of a step's products, and the floor of its attention in ns."""
    if steps is None or kind is None or kind.work is None or steps.shard is None:
        return math.nan, math.nan, math.nan
    shard, flops, traffic = steps.shard, kind.work.flops, kind.work.traffic
    values = sum(linear.values for linear in shard.linears()) + shard.head().values
    memory, compute = steps.roofs.memory, steps.roofs.fastest
    floor = math.nan
    if memory is not None and compute is not None:
        floor = max(flops.attention / compute.value, traffic.kv_read / memory.value)
    of_products = (flops.linear + flops.head) / kind.steps
    weights = values * shard.weight_bytes - sum(map(shard.saved, shard.linears()))
    return of_products, weights, floor / kind.steps * 1e9


def _sum(values: Iterable[float]) -> float:
    """Return the sum; NaN for nothing, and where one is unknown."""
    terms = list(values)
    return float(sum(terms)) if terms else math.nan
