"""Frozen view models of the plots: rooflines, occupancy, throughput and stall reasons.

Units and the meaning of None and `number` are as in reports/profile/view_models.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IDLE, COPIES = "idle", "copies to and from the host"


@dataclass(frozen=True)
class Roof:
    """One ceiling: a memory level (B/s) or a pipe (FLOP/s), with where its value comes from.

    `key` is dram, l2, l1, fp64, fp32, fp16 or tensor; `dtype` is set for pipes that have several.
    `source` is measured, counters or datasheet.
    """

    key: str
    dtype: str
    label: str
    value: float
    unit: str
    source: str
    clock_hz: float | None
    detail: str


@dataclass(frozen=True)
class Ridge:
    """Where a memory roof meets a compute roof: below `intensity` the memory level limits."""

    level: str
    pipe: str
    dtype: str
    intensity: float


def ridges(memory: Sequence[Roof], compute: Sequence[Roof]) -> tuple[Ridge, ...]:
    """Return the ridge points of all pairs: per compute roof, one per memory level."""
    return tuple(Ridge(m.key, c.key, c.dtype, c.value / m.value) for c in compute for m in memory)


@dataclass(frozen=True)
class RooflinePoint:
    """One kernel at one memory level. `roof_share`: reached over attainable at this intensity."""

    level: str
    intensity: float
    roof_share: float | None


@dataclass(frozen=True)
class RooflineKernel:
    """One kernel on a roofline: the same height (`throughput`, FLOP/s) at each level's intensity.

    `points` are ordered dram, l2, l1 as far as known; `share` (of GPU time) sets the marker area.
    `clock_hz` is the SM clock at which it was counted.
    """

    number: int
    kernel_id: str
    label: str
    category: str
    share: float | None
    throughput: float
    pipe: str
    dtype: str
    bound_by: str
    points: tuple[RooflinePoint, ...]
    clock_hz: float | None = None


@dataclass(frozen=True)
class NotPlotted:
    """A profiled kernel without a point on the roofline, and why."""

    number: int
    label: str
    share: float | None
    reason: str


@dataclass(frozen=True)
class RooflinePanel:
    """One roofline plot: the roofs that apply and the kernels measured against them.

    `key` ("tensor", "vector") names the file. Memory roofs are B/s, compute roofs FLOP/s, each at
    its own clock. `published` are those of the data sheet where measured ones are used.
    """

    key: str
    title: str
    memory_roofs: tuple[Roof, ...]
    compute_roofs: tuple[Roof, ...]
    ridges: tuple[Ridge, ...]
    kernels: tuple[RooflineKernel, ...]
    published: tuple[Roof, ...] = ()

    @property
    def clock_hz(self) -> float | None:
        """Mean SM clock of the kernels, weighted by their FLOPs; None where not known."""
        known = [
            ((kernel.share or 0.0) * kernel.throughput, kernel.clock_hz)
            for kernel in self.kernels
            if kernel.clock_hz
        ]
        flops = sum(flops_of_kernel for flops_of_kernel, _ in known)
        return (
            sum(flops_of_kernel * clock for flops_of_kernel, clock in known) / flops
            if flops
            else None
        )


@dataclass(frozen=True)
class TimeBar:
    """A kernel in the picture of the GPU time; `number` is empty for the rest."""

    number: str
    label: str
    category: str
    share: float
    total_ns: float | None
    calls: int | None


@dataclass(frozen=True)
class OccupancyBar:
    """Achieved against theoretical occupancy of one kernel, in per cent of resident warps."""

    number: int
    label: str
    share: float | None
    achieved_pct: float | None
    theoretical_pct: float | None
    limiter: str


@dataclass(frozen=True)
class ThroughputBar:
    """Per cent of each roof that one kernel reached; `bound_by` as in KernelRow."""

    number: int
    label: str
    share: float | None
    dram_pct: float | None
    l2_pct: float | None
    l1_pct: float | None
    tensor_pct: float | None
    bound_by: str


@dataclass(frozen=True)
class StallBar:
    """Stall reasons of one kernel: `shares` follow StallFigure.reasons and sum to 1."""

    number: int
    label: str
    share: float | None
    shares: tuple[float, ...]


@dataclass(frozen=True)
class StallFigure:
    """Stacked stall reasons; the last reason is "other" where small ones were added up."""

    reasons: tuple[str, ...]
    meanings: tuple[str, ...]
    bars: tuple[StallBar, ...]


@dataclass(frozen=True)
class Span:
    """A stage, or a step of an engine: from `begin_ns` to `end_ns` after the first launch."""

    begin_ns: float
    end_ns: float
    name: str


@dataclass(frozen=True)
class Lane:
    """One GPU over time: for each kind of kernel, and copies, the busy part of each bin, 0 to 1."""

    name: str
    busy: dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class TimePart:
    """One part of the bar: kernels of one kind, idle time, copies; `share` of the run, 0 to 1."""

    name: str
    colour: str
    share: float


@dataclass(frozen=True)
class Overview:
    """A strip of `span_ns` with stages and a lane per GPU, and the parts that the time has.

    `lanes` and `spans` are empty where single launches are not known, `segments` where no time is.
    `clock_hz` is the SM clock in each bin, NaN where no launch tells it; empty where none does.
    `top_hz` is the highest that the GPU has, NaN where not known.
    """

    span_ns: float
    spans: tuple[Span, ...]
    lanes: tuple[Lane, ...]
    segments: tuple[TimePart, ...]
    total_name: str
    clock_hz: tuple[float, ...] = ()
    top_hz: float = math.nan

    @property
    def drawn(self) -> bool:
        """Whether there is something to draw."""
        return bool(self.lanes or self.segments)
