"""Sums the operator view and the products of the trace for a run of each stage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from nsight_prof.parsers.cells import Row, count, known, number, records, text
from nsight_prof.reports.engine.operators.models import OfStage, Operator, Product
from nsight_prof.reports.engine.operators.views import Traced, views
from nsight_prof.reports.engine.stages.kinds import Stages, stages_of
from nsight_prof.reports.load import Run

ALL = "(all)"
COUNTED_LIKE = 0.02
"""Counted FLOPs within this part of those of whole tiles are of that shape (clusters round up)."""


def stages_of_operators(run: Run) -> tuple[OfStage, ...]:
    """Return the stages of the operator view that had GPU work, the most of it first."""
    engine = stages_of(run)
    rows = records(run.operators)
    sums: dict[str, float] = {}
    for row in rows:
        sums[text(row["stage"])] = sums.get(text(row["stage"]), 0.0) + number(row["gpu_ns"])
    names = sorted((name for name, total in sums.items() if total > 0), key=lambda s: -sums[s])
    return tuple(_stage(run, name, rows, engine) for name in names)


def _stage(run: Run, stage: str, rows: Sequence[Row], engine: Stages | None) -> OfStage:
    mine = [row for row in rows if text(row["stage"]) == stage]
    seen_runs = max((count(row["instances"]) or 0 for row in mine), default=0) or 1
    traced = _traced(run, stage)
    traced_runs = (count(traced["instances"]) or 1) if traced else 1
    kernel_ns = number(traced["kernel_ns"]) / traced_runs if traced else math.nan
    products = _products(run, stage, seen_runs, traced_runs)
    launches = number(traced["launches"]) / traced_runs if traced else math.nan
    by_name = _by_name(run, stage, traced_runs)
    attends = run.kernels[run.kernels["category"] == "attention"]
    names, keys = set(attends["short_name"]), tuple(attends["kernel_id"])
    attention = sum(time for name, time in by_name.items() if name in names)
    sums = Traced(kernel_ns, launches, names, attention if by_name else math.nan)
    found = views(stage, products, mine, seen_runs, sums, engine)
    return OfStage(stage, products, _operators(mine, seen_runs, by_name), found, kernel_ns, keys)


def _traced(run: Run, stage: str) -> Row | None:
    """Return the stage in the trace; the whole trace for work outside of stages, if it has none."""
    rows = {text(row["stage"]): row for row in records(run.stages)}
    if stage:
        return rows.get(stage)
    return rows.get(ALL) if len(rows) == 1 else None


def _products(run: Run, stage: str, seen_runs: int, traced_runs: int) -> tuple[Product, ...]:
    counters = {text(row["kernel_id"]): row for row in records(run.counters)}
    ours = [row for row in records(run.gemms) if text(row["stage"]) == stage]
    shapes: dict[str, int] = {}
    for row in ours:
        shapes[text(row["kernel_id"])] = shapes.get(text(row["kernel_id"]), 0) + 1
    return tuple(
        Product(
            **_identity(row),
            calls=number(row["calls"]) / traced_runs,
            operator_calls=number(row["operator_calls"]) / seen_runs,
            median_ns=number(row["median_ns"]),
            total_ns=number(row["total_ns"]) / traced_runs,
            operator_ns=number(row["operator_ns"]),
            flops=number(row["flops"]),
            bytes=number(row["bytes"]),
            padding=number(row["tile_padding"]),
            **_counted(row, counters.get(text(row["kernel_id"])), shapes[text(row["kernel_id"])]),
            roof=text(row["roof_used"]),
            roof_source=text(row["roof_source"]),
            fraction=number(row["roof_fraction"]),
            kernel_id=text(row["kernel_id"]),
        )
        for row in ours
    )


def _identity(row: Row) -> Row:
    texts = ("stage", "module", "dtype", "kernel", "operator_kernel", "join", "reason", "tile")
    sizes = {name: count(row[name]) or 0 for name in ("m", "n", "k", "batch")}
    return {name: text(row[name]) for name in texts} | sizes | {"split_k": count(row["split_k"])}


def _counted(row: Row, counter: Row | None, shapes: int) -> Row:
    """Return FLOPs and DRAM bytes that counters saw in a launch of this shape.

    The counted launch of a kernel that several shapes share is of the one whose tiles explain it.
    """
    unknown = {"counted": math.nan, "dram_read": math.nan}
    if counter is None:
        return unknown
    flops = known(counter["flops_tensor"]) or known(counter["flops"])
    if flops is None:
        return unknown
    tiled = number(row["flops"]) * number(row["tile_padding"])
    if shapes > 1 and not abs(flops / tiled - 1) <= COUNTED_LIKE:
        return unknown
    return {"counted": flops, "dram_read": number(counter["dram_read_bytes"])}


def _by_name(run: Run, stage: str, runs: int) -> dict[str, float]:
    """Return the time of a run in the trace of all kernels that a reader calls the same."""
    names = dict(zip(run.kernels["kernel_id"], run.kernels["short_name"], strict=True))
    found: dict[str, float] = {}
    for row in records(run.stage_kernels):
        if text(row["stage"]) == stage:
            name = text(names.get(text(row["kernel_id"])))
            found[name] = found.get(name, 0.0) + number(row["total_ns"]) / runs
    return found


def _operators(rows: Sequence[Row], runs: int, traced: Mapping[str, float]) -> tuple[Operator, ...]:
    whole = sum(number(row["gpu_ns"]) for row in rows)
    found = [
        Operator(
            name=text(row["operator"]),
            shapes=text(row["input_shapes"]),
            calls=(known(row["calls"]) or number(row["launches"])) / runs,
            gpu_ns=number(row["gpu_ns"]) / runs,
            self_cpu_ns=number(row["self_cpu_ns"]) / runs,
            kernel=text(row["kernel"]),
            share=number(row["gpu_ns"]) / whole if whole else math.nan,
            traced_ns=traced.get(text(row["kernel"]), 0.0),
        )
        for row in rows
    ]
    return tuple(sorted(found, key=lambda operator: -operator.gpu_ns))
