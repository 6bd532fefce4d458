"""What analyses of a run find: how its time divides, and its roofs side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class MissingValue(NamedTuple):
    """A column of the counters without a value, and why."""

    column: str
    reason: str


@dataclass(frozen=True)
class GpuTime:
    """What one GPU did in the run; times in ns, of the wall time of all GPUs.

    `gpu` is its number (table `devices`) and `processes` how many used it. `busy_ns` is time in
    which a kernel, copy or memset ran, `kernel_busy_ns` the part in which a kernel ran and
    `copies_alone_ns` the rest; `gpu_time_ns` and `copies_ns` add up kernels, and copies and
    memsets, also where they ran at the same time. None is unknown.
    """

    gpu: int
    name: str
    uuid: str
    processes: int
    launches: int
    wall_ns: float
    gpu_time_ns: float
    kernel_busy_ns: float
    busy_ns: float
    idle_ns: float
    idle_share: float | None
    copies_ns: float
    copies_alone_ns: float


@dataclass(frozen=True)
class RunTime:
    """The time of a run in ns; kernels, copies, graphs and idle time add up to `whole_ns`.

    `basis` is "wall" (from the first to the last work of the GPU), "gpu" where only the time of the
    kernels is known, or "" where no time is. Of several GPUs each time is the mean of those that
    ran kernels (`gpus`, 0 for unknown, of `present` in the machine; `gpu` is their name), but
    `gpu_time_ns` is the sum of all kernels of all of them. Kernels of one GPU that ran at the same
    time count once, and copies count where no kernel ran. `graphs_ns` is the time of CUDA graphs
    that were traced as wholes, whose kernels are not known. `queued_ns` is the part of the idle
    time between operations that were issued before; `waits` says for what the rest waited: the
    cause of idle time with the most time, and `waits_also` the next one where that is less than
    half of it. `profiler_ns` is about what nsys adds to the idle time: what each call of CUDA takes
    longer under it, where the GPU waits for the host. None is unknown, or not asked.
    """

    basis: str
    whole_ns: float | None
    kernels_ns: float | None
    copies_ns: float | None
    graphs_ns: float | None
    idle_ns: float | None
    queued_ns: float | None
    waits: str
    waits_also: str
    gpu_time_ns: float | None
    gpu: str
    gpus: int
    present: int
    profiler_ns: float | None = None

    def of_kernels(self, gpu_time_ns: float) -> float | None:
        """Return what a part of the summed kernel time is of the run's own time, in ns."""
        if self.kernels_ns is None or not self.gpu_time_ns:
            return None
        return gpu_time_ns * self.kernels_ns / self.gpu_time_ns

    def of_whole(self, share: float | None) -> float | None:
        """Return what a share of the summed kernel time is as a share of the whole, 0 to 1."""
        if share is None or self.kernels_ns is None or not self.whole_ns:
            return None
        return share * self.kernels_ns / self.whole_ns


@dataclass(frozen=True)
class RoofComparison:
    """One roof from each source; None where a source has none.

    `of_counters` is measured over counters at the clock of the measurement, `of_datasheet`
    measured over datasheet, each at its own clock.
    """

    key: str
    dtype: str
    label: str
    unit: str
    measured: float | None
    measured_clock_hz: float | None
    counters: float | None
    counters_clock_hz: float | None
    datasheet: float | None
    of_counters: float | None
    of_datasheet: float | None
