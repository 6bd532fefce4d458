"""What the operator view and the trace say of each stage: products, operators and sums of a run.

A run of a stage is one time that it ran on one GPU: for a serving engine, one step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from parsers.gemm_shapes import SIZES
from reports.cells import Row, count, known, number, records, text
from reports.load import Run
from reports.serving.stage_rows import Stages, stages_of

ALL = "(all)"
ALL_KERNELS = "time of all kernels"
COUNTED_LIKE = 0.02
"""Counted FLOPs within this part of those of whole tiles are of that shape (clusters round up)."""


@dataclass(frozen=True)
class Product:
    """A matrix product of a stage; numbers are of one call, `calls` and `total_ns` of a run.

    `fraction` is the part of its roof that it reached; NaN where unknown, as all other numbers.
    `counted` is FLOPs by counters; NaN where no launch of this shape was counted.
    """

    stage: str
    module: str
    m: int
    n: int
    k: int
    batch: int
    dtype: str
    kernel: str
    operator_kernel: str
    join: str
    reason: str
    tile: str
    split_k: int | None
    calls: float
    operator_calls: float
    median_ns: float
    total_ns: float
    operator_ns: float
    flops: float
    bytes: float
    padding: float
    counted: float
    dram_read: float
    roof: str
    roof_source: str
    fraction: float

    @property
    def name(self) -> str:
        """Name of the matrix without the path to it, else its size."""
        inside = self.module.rpartition("*.")[2]
        return (inside if inside != self.module else inside.rpartition(".")[2]) or self.size

    @property
    def size(self) -> str:
        """M x N x K, with the number of products where a call has several."""
        size = f"{self.m} x {self.n} x {self.k}"
        return size if self.batch == 1 else f"{self.batch} of {size}"

    @property
    def flop_rate(self) -> float:
        """FLOP/s in the trace."""
        return self.flops / self.median_ns * 1e9

    @property
    def byte_rate(self) -> float:
        """B/s in the trace, of the bytes that the product must move."""
        return self.bytes / self.median_ns * 1e9

    @property
    def weights(self) -> float:
        """Bytes of the second factor."""
        return float(self.batch * self.n * self.k * SIZES.get(self.dtype, math.nan))

    @property
    def lost_ns(self) -> float:
        """Time of a run beyond what the roof allows."""
        return self.total_ns * (1 - self.fraction)


@dataclass(frozen=True)
class Operator:
    """An operator of a stage with the shapes of its inputs; calls and times are of a run.

    `traced_ns` is what kernels of the same name as its largest take in the trace.
    """

    name: str
    shapes: str
    calls: float
    gpu_ns: float
    self_cpu_ns: float
    kernel: str
    share: float
    traced_ns: float


@dataclass(frozen=True)
class View:
    """One quantity of a run of a stage in the three views; NaN where a view does not tell it."""

    stage: str
    quantity: str
    unit: str
    analytical: float
    operators: float
    kernels: float


@dataclass(frozen=True)
class OfStage:
    """A stage in the operator view, with its products in the trace."""

    stage: str
    products: tuple[Product, ...]
    operators: tuple[Operator, ...]
    views: tuple[View, ...]
    kernel_ns: float

    @property
    def label(self) -> str:
        """What a reader calls the stage."""
        return self.stage or "outside of stages"

    @property
    def product_share(self) -> float:
        """Part of the trace's kernel time in products; NaN where one did not join."""
        return sum(product.total_ns for product in self.products) / self.kernel_ns


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
    views = _views(stage, products, mine, seen_runs, (kernel_ns, launches), engine)
    operators = _operators(mine, seen_runs, _by_name(run, stage, traced_runs))
    return OfStage(stage, products, operators, tuple(views), kernel_ns)


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


def _views(
    stage: str,
    products: Sequence[Product],
    rows: Sequence[Row],
    runs: int,
    traced: tuple[float, float],
    engine: Stages | None,
) -> list[View]:
    ours = [row for row in rows if known(row["m"]) is not None]
    needed, weights = _needed(stage, engine)
    found = [
        View(
            stage,
            "FLOPs of matrix products",
            "FLOP",
            needed,
            sum(number(row["flops"]) for row in ours) / runs,
            _sum(p.calls * _hardware(p) for p in products),
        ),
        View(
            stage,
            "weights that they read",
            "B",
            weights,
            _sum(p.operator_calls * p.weights for p in _distinct(products)),
            _sum(p.calls * p.dram_read for p in products),
        ),
        View(
            stage,
            "time of matrix products",
            "ns",
            _sum(p.total_ns * p.fraction for p in products),
            sum(number(row["gpu_ns"]) for row in ours) / runs,
            _sum(p.total_ns for p in products),
        ),
        View(
            stage,
            ALL_KERNELS,
            "ns",
            math.nan,
            sum(number(row["gpu_ns"]) for row in rows) / runs,
            traced[0],
        ),
        View(
            stage,
            "kernels",
            "",
            math.nan,
            sum(number(row["launches"]) for row in rows) / runs,
            traced[1],
        ),
    ]
    return [view for view in found if not (math.isnan(view.operators) and math.isnan(view.kernels))]


def _needed(stage: str, engine: Stages | None) -> tuple[float, float]:
    """Return FLOPs and bytes of weights of the products of a step, by the model's shape."""
    kind = engine.kind(stage) if engine else None
    if engine is None or kind is None or kind.needed is None or engine.shard is None:
        return math.nan, math.nan
    shard, flops = engine.shard, kind.needed.flops
    values = sum(linear.values for linear in shard.linears()) + shard.head().values
    return (flops.linear + flops.head) / kind.steps, values * shard.weight_bytes


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
