"""Frozen view models of the plots: rooflines, occupancy, throughput and stall reasons.

Units and the meaning of None and `number` are as in reports/profile/view_models.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nsight_prof.reports.page.values import Words

IDLE, COPIES, GRAPHS = "idle", "copies to and from the host", "CUDA graphs, traced as wholes"


@dataclass(frozen=True)
class TimeBar:
    """A kernel in the picture of the GPU time; `number` is empty for the rest."""

    number: str
    label: Words
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
    meanings: tuple[Words, ...]
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
