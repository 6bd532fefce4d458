"""What the operator view and the trace say of each stage: products, operators, views of a run.

A run of a stage is one time that it ran on one GPU: for a serving engine, one step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nsight_prof.parsers.gemm_shapes import SIZES

ALL_KERNELS = "time of all kernels"
ATTENTION = "time of attention"
"""Quantities of views: the sum of every kernel, and of those of attention."""


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
    def mean_ns(self) -> float:
        """Time of a call in the trace."""
        return self.total_ns / self.calls if self.calls > 0 else math.nan

    @property
    def flop_rate(self) -> float:
        """FLOP/s in the trace."""
        return self.flops / self.mean_ns * 1e9

    @property
    def byte_rate(self) -> float:
        """B/s in the trace, of the bytes that the product must move."""
        return self.bytes / self.mean_ns * 1e9

    @property
    def weights(self) -> float:
        """Bytes of the second factor."""
        return float(self.batch * self.n * self.k * SIZES.get(self.dtype, math.nan))

    @property
    def lost_ns(self) -> float:
        """Time of a run beyond what the roof allows: all calls less calls x the least of one."""
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
    """A stage in the operator view, with its products in the trace.

    `attention` are the ids of the kernels of attention.
    """

    stage: str
    products: tuple[Product, ...]
    operators: tuple[Operator, ...]
    views: tuple[View, ...]
    kernel_ns: float
    attention: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What a reader calls the stage."""
        return self.stage or "outside of stages"

    @property
    def product_share(self) -> float:
        """Part of the trace's kernel time in products; NaN where one did not join."""
        return sum(product.total_ns for product in self.products) / self.kernel_ns
