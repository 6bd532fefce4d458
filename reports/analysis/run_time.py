"""Divides the time of a run, as its user waits for it, into work of the GPU and idle time."""

from __future__ import annotations

import math

import numpy as np

from nsight_prof.parsers.cells import number, text
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.gpu_times import ALL, gpu_of_launches, per_gpu_gaps, working
from nsight_prof.reports.analysis.models import RunTime
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.stages import wall_time
from nsight_prof.reports.analysis.timeline import union

WALL, GPU = "wall", "gpu"
"""What a time is a part of: the run from its first to its last GPU work, or its kernels' time."""


@once
def run_time(run: Run) -> RunTime:
    """Return how the time of a run divides.

    Without single launches kernels are taken not to overlap. Tables of an older prof do not tell
    how several GPUs divide their time.
    """
    total = kernel_time(run)
    alone = kernel_unions(run)
    gpus = max(1, len(alone))
    name, present = _gpu(run)
    gpus_of = (name, gpus if alone or present <= 1 else 0, max(present, gpus))
    if math.isnan(total):
        return RunTime("", None, None, None, None, None, None, "", "", None, *gpus_of)
    busy = sum(alone) / gpus if alone else total
    wall, idle = wall_time(run)
    if not wall > 0 or (gpus > 1 and not working(run)):
        return RunTime(GPU, busy, busy, None, None, None, None, "", "", total, *gpus_of)
    kernels = min(busy, wall - idle)
    without = wall - idle - kernels
    copies = min(without, _memory_ns(run, without))
    queued, waits, also = _gaps(run)
    rest = max(0.0, wall - kernels - without)
    times = (wall, kernels, copies, without - copies, rest)
    return RunTime(WALL, *times, queued, waits, also, total, *gpus_of)


def _memory_ns(run: Run, otherwise: float) -> float:
    """Return the time of copies and memsets of one GPU, one after another; else `otherwise`.

    A GPU that works for longer without a kernel runs CUDA graphs that were traced as wholes.
    """
    gpus = working(run)
    if gpus:
        return sum(gpu.copies_ns for gpu in gpus) / len(gpus)
    capture = run.stages.loc[run.stages["stage"] == ALL, "memory_ns"]
    return otherwise if capture.isna().any() else number(capture.sum())


@once
def kernel_unions(run: Run) -> list[float]:
    """Return for each GPU the ns in which at least one kernel ran; empty without launches."""
    if run.launch_times.empty:
        return []
    frame = run.launch_times[["start_ns", "duration_ns"]]
    return [
        union(start, start + rows["duration_ns"].to_numpy(np.int64))
        for _, rows in frame.groupby(gpu_of_launches(run))
        for start in [rows["start_ns"].to_numpy(np.int64)]
    ]


def _gpu(run: Run) -> tuple[str, int]:
    """Return name and number of the machine's GPUs; several names where they differ."""
    names = [
        f"{text(row.name_)} ({text(row.chip)})".replace(" ()", "")
        for row in run.gpus.rename(columns={"name": "name_"}).itertuples()
    ]
    names = names or [str(gpu["name"]) for gpu in run.manifest.gpus if gpu.get("name")]
    return ", ".join(dict.fromkeys(names)), len(names)


def _gaps(run: Run) -> tuple[float | None, str, str]:
    """Return idle time between queued operations, and the causes of most of the idle time."""
    sums = per_gpu_gaps(run, capture=True).groupby("cause")["idle_ns"].sum()
    known = {str(cause): number(value) for cause, value in sums.items()}
    if not set(known) - {"unknown"}:
        return None, "", ""
    largest = sorted(known, key=lambda cause: -known[cause])
    is_most = 2 * known[largest[0]] >= sum(known.values())
    return known.get("queued", 0.0), largest[0], "" if is_most else largest[1]
