"""The analytical, the operator and the kernel view of a run of a stage, side by side."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from nsight_prof.parsers.cells import Row, known, number, text
from nsight_prof.reports.engine.operators.models import ALL_KERNELS, ATTENTION, Product, View
from nsight_prof.reports.engine.stages.kinds import Stages


@dataclass(frozen=True)
class Traced:
    """A run of a stage in the trace: all kernels, and those of attention by their names."""

    kernel_ns: float
    launches: float
    attention_names: Collection[str]
    attention_ns: float


def views(
    stage: str,
    products: Sequence[Product],
    rows: Sequence[Row],
    runs: int,
    traced: Traced,
    engine: Stages | None,
) -> tuple[View, ...]:
    """Return what more than one view tells; `rows` are of table `operators`, over `runs` runs."""
    ours = [row for row in rows if known(row["m"]) is not None]
    needed, weights = _needed(stage, engine)
    attention = [row for row in rows if text(row["kernel"]) in traced.attention_names]
    told = partial(View, stage)

    def mean(column: str, of: Sequence[Row]) -> float:
        return sum(number(row[column]) for row in of) / runs

    flops = mean("flops", ours), _sum(p.calls * _hardware(p) for p in products)
    read = (
        _sum(p.operator_calls * p.weights for p in _distinct(products)),
        _sum(p.calls * p.dram_read for p in products),
    )
    floor = _sum(p.total_ns * p.fraction for p in products)
    time = mean("gpu_ns", ours), _sum(p.total_ns for p in products)
    attending = mean("gpu_ns", attention), traced.attention_ns
    found = [
        told("FLOPs of matrix products", "FLOP", needed, *flops),
        told("weights that they read", "B", weights, *read),
        told("time of matrix products", "ns", floor, *time),
        told(ATTENTION, "ns", _attention_floor_ns(stage, engine), *attending),
        told(ALL_KERNELS, "ns", math.nan, mean("gpu_ns", rows), traced.kernel_ns),
        told("kernels", "", math.nan, mean("launches", rows), traced.launches),
    ]
    return tuple(view for view in found if view.operators > 0 or view.kernels > 0)


def _needed(stage: str, engine: Stages | None) -> tuple[float, float]:
    """Return FLOPs and bytes of weights of the products of a step, by the model's shape."""
    kind = engine.kind(stage) if engine else None
    if engine is None or kind is None or kind.needed is None or engine.shard is None:
        return math.nan, math.nan
    shard, flops = engine.shard, kind.needed.flops
    values = sum(linear.values for linear in shard.linears()) + shard.head().values
    return (flops.linear + flops.head) / kind.steps, values * shard.weight_bytes


def _attention_floor_ns(stage: str, engine: Stages | None) -> float:
    """Return the least time of a step's attention: its FLOPs, or reading the KV cache."""
    kind = engine.kind(stage) if engine else None
    if engine is None or kind is None or kind.needed is None:
        return math.nan
    memory, compute = engine.roofs.memory, engine.roofs.compute
    if memory is None or compute is None:
        return math.nan
    needed = kind.needed
    floors = (needed.flops.attention / compute.value, needed.traffic.kv_read / memory.value)
    return max(floors) / kind.steps * 1e9


def _hardware(product: Product) -> float:
    """Return FLOPs of a call by counters, else those of whole tiles."""
    return product.flops * product.padding if math.isnan(product.counted) else product.counted


def _distinct(products: Sequence[Product]) -> list[Product]:
    """Return each shape once, where several kernels of the trace computed it."""
    found = {(p.module, p.m, p.n, p.k, p.batch, p.dtype): p for p in products}
    return list(found.values())


def _sum(values: Iterable[float]) -> float:
    """Return the sum; NaN for nothing, and where a part is unknown."""
    parts = list(values)
    return float(sum(parts)) if parts else math.nan
