"""Times of single GPUs: what each of several did in a run, and what one did on average.

GPUs work at the same time. Of several, a wall or idle time is that of one GPU on average, and GPU
time the sum over all of them. What the union of all would say (idle: no GPU works) is another
number, which stands beside them as what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nsight_prof.parsers.cells import Row, from_row, known, number, records, text
from nsight_prof.parsers.nsys.sqlite.codes import code_rows
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.models import GpuTime

ALL = "(all)"
"""Name of the row of table `stages` that stands for the whole capture."""
LAUNCHES, HOST, SYNCHRONISATION, QUEUED = "launches", "host", "synchronisation", "queued"
"""Causes of idle time in table `idle_gaps`; what has none is "unknown"."""
MEAN = ("wall_ns", "gpu_busy_ns", "idle_ns")
"""Columns of table `stages` that are one GPU's, on average of several; the others add up."""
PARTS = ("gaps", "idle_ns", "late_calls", "before_call_ns", "in_call_ns")
"""Columns of table `idle_gaps` that add up over gaps."""


@once
def gpu_times(run: Run) -> tuple[GpuTime, ...]:
    """Return every GPU that did any work; empty where the run has no trace."""
    capture = run.gpu_stages[run.gpu_stages["stage"] == ALL]
    return tuple(_time(run, row) for row in records(capture.sort_values("gpu")))


def _time(run: Run, row: Row) -> GpuTime:
    devices = run.devices[run.devices["gpu"] == row["gpu"]]
    names, uuids = ([text(value) for value in devices[column]] for column in ("name", "uuid"))
    wall, busy, kernels = (number(row[c]) for c in ("wall_ns", "gpu_busy_ns", "kernel_busy_ns"))
    idle = number(row["idle_ns"])
    return from_row(
        GpuTime,
        row,
        name=next(filter(None, names), ""),
        uuid=next(filter(None, uuids), ""),
        processes=int(devices["pid"].nunique()),
        gpu_time_ns=number(row["kernel_ns"]),
        kernel_busy_ns=kernels,
        busy_ns=busy,
        idle_share=known(idle / wall) if wall > 0 else None,
        copies_ns=number(row["memory_ns"]),
        copies_alone_ns=busy - kernels,
    )


@once
def working(run: Run) -> tuple[GpuTime, ...]:
    """Return the GPUs that ran kernels, where these are several; empty else."""
    times = tuple(time for time in gpu_times(run) if time.launches)
    return times if len(times) > 1 else ()


def gpu_count(run: Run) -> int:
    """Return over how many GPUs the GPU time sums: those that ran kernels, at least 1."""
    return len(working(run)) or 1


@once
def per_gpu_stages(run: Run) -> pd.DataFrame:
    """Return table `stages` with the times of one GPU on average, and how many `gpus` these are.

    Of several GPUs, those count that have work in the stage.
    """
    frame = run.stages.assign(gpus=1)
    if not (gpus := [time.gpu for time in working(run)]):
        return frame
    by = run.gpu_stages[run.gpu_stages["gpu"].isin(gpus)].groupby("stage")
    means, gpus_of = by[list(MEAN)].mean(), by["gpu"].nunique()
    for column in MEAN:
        mean = frame["stage"].map(means[column]).astype(float)
        frame[column] = mean.fillna(frame[column].astype(float))
    frame["gpus"] = frame["stage"].map(gpus_of).fillna(1).astype(int)
    return frame


def per_gpu_gaps(run: Run, *, capture: bool = False) -> pd.DataFrame:
    """Return table `idle_gaps` of one GPU on average, and of how many `gpus` that is the mean.

    Of several GPUs, those count that have work in the stage, for the whole `capture` all that ran
    kernels; numbers of gaps have parts then.
    """
    if not (gpus := [time.gpu for time in working(run)]):
        return run.idle_gaps.assign(gpus=1)
    gaps = run.gpu_idle_gaps[run.gpu_idle_gaps["gpu"].isin(gpus)].drop(columns="gpu")
    frame = gaps.astype(dict.fromkeys(PARTS, "float64"))
    in_stage = {} if capture else per_gpu_stages(run).set_index("stage")["gpus"].to_dict()
    frame["gpus"] = [in_stage.get(stage, len(gpus)) for stage in frame["stage"].fillna("")]
    for column in PARTS:
        frame[column] = frame[column] / frame["gpus"]
    by = ["stage", "cause", "waited", "call", "nvtx_range", "host_range"]
    groups = frame.groupby(by, dropna=False, as_index=False)
    sums = groups[list(PARTS)].sum(min_count=1)
    others = groups.agg({"longest_ns": "max", "gpus": "first"})
    return sums.merge(others, on=by).sort_values("idle_ns", ascending=False, ignore_index=True)


def gpu_of(run: Run, launches: pd.DataFrame) -> pd.Series[int]:
    """Return the GPU of each of `launches`: of table `devices`, else its device index."""
    known_ = run.devices.drop_duplicates(["pid", "device"]).set_index(["pid", "device"])["gpu"]
    code, first = distinct(launches, ["pid", "device"])
    device = launches[["pid", "device"]].iloc[first]
    found = pd.Series(
        known_.reindex(pd.MultiIndex.from_frame(device)).to_numpy(), index=device.index
    )
    gpu = found.where(found.notna(), device["device"]).fillna(-1).astype(int)
    return pd.Series(gpu.to_numpy()[code], index=launches.index)


@once
def gpu_of_launches(run: Run) -> pd.Series[int]:
    """Return the GPU of each launch of the run."""
    return gpu_of(run, run.launch_times)


@once
def queues(run: Run) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the number of each launch's stream, and the first launch of each stream."""
    return distinct(run.launch_times, ["device", "pid", "context", "stream"])


def distinct(frame: pd.DataFrame, names: Sequence[str]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Code the distinct rows of columns of whole numbers, in order of appearance.

    Returns the code of each row, and where each code comes first. Unknown is a value, too.
    """
    return code_rows([frame[name].fillna(-1).to_numpy(np.int64) for name in names])


def idle_range(times: tuple[GpuTime, ...]) -> tuple[float, float] | None:
    """Return the least and the largest idle share of GPUs; None where it is not known."""
    shares = [time.idle_share for time in times if time.idle_share is not None]
    return (min(shares), max(shares)) if shares else None
