"""Matrix products, operators and totals of a stage, by the operator view and by the trace.

A run of a stage is one time that it ran on one GPU: for a serving engine, one step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nsight_prof.parsers.cells import Row, from_row, known, number, text
from nsight_prof.parsers.torch.gemm_shapes import SIZES
from nsight_prof.reports.page import Number, Ref, Text, Value, Verbatim

COUNTED_LIKE = 0.02
"""Counted FLOPs within this part of those of whole tiles are of that shape (clusters round up)."""


@dataclass(frozen=True)
class Product:
    """A matrix product of a stage; numbers are of one call, `calls` and `total_ns` of a run.

    `fraction` is the part of its roof that a call reached in the mean; NaN where unknown, as all
    other numbers. Rates are of the mean, too, so that calls, time and rate fit each other.
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
    kernel_id: str = ""

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
    def full_name(self) -> Verbatim:
        """Name and size."""
        return Verbatim(f"{self.name} ({self.size})" if self.module else self.size)

    @property
    def mean_ns(self) -> float:
        """Time of a call in the trace."""
        return self.total_ns / self.calls if self.calls > 0 else math.nan

    @property
    def flop_rate(self) -> Number:
        """FLOP/s in the trace."""
        return self.number("flop_per_s", self.flops / self.mean_ns * 1e9, "FLOP/s")

    @property
    def byte_rate(self) -> Number:
        """B/s in the trace, of the bytes that the product must move."""
        return self.number("bytes_per_s", self.bytes / self.mean_ns * 1e9, "B/s")

    @property
    def rate(self) -> Number:
        """The rate that its roof limits."""
        return self.byte_rate if self.roof == "dram" else self.flop_rate

    @property
    def roof_share(self) -> Number:
        """Part of its roof that a call reached."""
        return self.number("roof_fraction", self.fraction, "fraction")

    @property
    def weight_bytes(self) -> float:
        """Bytes of the second factor."""
        return float(self.batch * self.n * self.k * SIZES.get(self.dtype, math.nan))

    @property
    def hardware_flops(self) -> float:
        """FLOPs of a call by counters, else those of whole tiles."""
        return self.flops * self.padding if math.isnan(self.counted) else self.counted

    @property
    def lost_ns(self) -> float:
        """Time of a run beyond what the roof allows: all calls less calls x the floor of one."""
        return self.total_ns * (1 - self.fraction)

    @property
    def ref(self) -> Ref:
        """Its row in table `gemms`."""
        return Ref("gemms", f"{self.stage} {self.name} {self.m}")

    def number(self, column: str, value: float, unit: str) -> Number:
        """Return a value from a column of its row; where it is missing, with the reason."""
        return Number(value, unit, (Ref("gemms", self.ref.row, column),), self.reason)


def products(
    rows: Sequence[Row], counters: dict[str, Row], profiled_runs: int, traced_runs: int
) -> tuple[Product, ...]:
    """Return the products of a stage.

    Args:
        rows: those of the stage in table `gemms`.
        counters: rows of table `counters` by kernel_id.
        profiled_runs: how often the stage ran under the torch profiler.
        traced_runs: how often it ran in the trace.
    """
    shapes: dict[str, int] = {}
    for row in rows:
        shapes[text(row["kernel_id"])] = shapes.get(text(row["kernel_id"]), 0) + 1
    found = []
    for row in rows:
        key = text(row["kernel_id"])
        counted, dram_read = _counted(row, counters.get(key), shapes[key])
        found.append(
            from_row(
                Product,
                row,
                calls=number(row["calls"]) / traced_runs,
                operator_calls=number(row["operator_calls"]) / profiled_runs,
                total_ns=number(row["total_ns"]) / traced_runs,
                padding=number(row["tile_padding"]),
                counted=counted,
                dram_read=dram_read,
                roof=text(row["roof_used"]),
                roof_source=text(row["roof_source"]),
                fraction=number(row["roof_fraction"]),
            )
        )
    return tuple(found)


def _counted(row: Row, counter: Row | None, shapes: int) -> tuple[float, float]:
    """Return FLOPs and DRAM bytes that counters have of a launch of this shape.

    The counted launch of a kernel that several shapes share is of the one whose tiles explain it.
    """
    if counter is None:
        return math.nan, math.nan
    flops = known(counter["flops_tensor"]) or known(counter["flops"])
    if flops is None:
        return math.nan, math.nan
    tiled = number(row["flops"]) * number(row["tile_padding"])
    if shapes > 1 and not abs(flops / tiled - 1) <= COUNTED_LIKE:
        return math.nan, math.nan
    return flops, number(counter["dram_read_bytes"])


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

    @property
    def excess_ns(self) -> float:
        """Time of a run beyond that of the same kernel in the trace."""
        return self.gpu_ns - self.traced_ns


@dataclass(frozen=True)
class View:
    """One quantity of a run of a stage in three views; NaN where a view does not have it."""

    stage: str
    quantity: str
    unit: str
    analytical: float
    operators: float
    kernels: float

    def number(self, view: str) -> Number:
        """Return the value of one view, with its unit."""
        value = getattr(self, view)
        return Number(value, self.unit, missing="the view does not have it")


@dataclass(frozen=True)
class Stage:
    """A stage in the operator view, with its products in the trace.

    `attention` are the ids of the kernels of attention; `runs` is how often the stage ran in the
    trace.
    """

    stage: str
    products: tuple[Product, ...]
    operators: tuple[Operator, ...]
    views: tuple[View, ...]
    kernel_ns: float
    runs: int
    attention: tuple[str, ...] = ()

    @property
    def label(self) -> Value:
        """What a reader calls the stage."""
        return Verbatim(self.stage) if self.stage else Text("outside of stages")

    @property
    def product_share(self) -> float:
        """Part of the trace's kernel time in products; NaN where one did not join."""
        return sum(product.total_ns for product in self.products) / self.kernel_ns

    def share(self, time_ns: float) -> Number:
        """Return a part of the kernel time of a run."""
        return Number(time_ns / self.kernel_ns, "fraction")

    def view(self, quantity: str) -> View | None:
        """Return one quantity in the three views; None where it is not known."""
        return next((view for view in self.views if view.quantity == quantity), None)
