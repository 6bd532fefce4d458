"""Table `gpu_stages`: each stage on each GPU, from the work of one GPU at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.rows.devices import Devices
from nsight_prof.parsers.nsys.rows.timeline import Operations, busy, timeline
from nsight_prof.parsers.nsys.sqlite.database import Array
from nsight_prof.parsers.nsys.stages.work import ALL, Attributed, Work


def by_gpu(work: Work, devices: Devices) -> Iterator[tuple[int, Work]]:
    """The work of each GPU, one after the other; of the only GPU all that there is."""
    gpus = devices.gpus
    if len(gpus) < 2:
        yield from ((gpu, work) for gpu in gpus)
        return
    kernels = work.kernels
    kernel_gpu = devices.of(kernels.places, kernels.queue)
    for gpu in gpus:
        picked = kernels.pick(np.flatnonzero(kernel_gpu == gpu))
        memory, graphs = (on_gpu(o, devices, gpu) for o in (work.memory, work.graphs))
        calls = [picked.call, memory.call, graphs.call]
        yield gpu, Work(picked, memory, graphs, _of_calls(work.attributed, calls), work.issuers)


def on_gpu(operations: Operations, devices: Devices, gpu: int) -> Operations:
    """Those of `operations` that ran on `gpu`, also of the only one those of no known device."""
    if len(devices.gpus) < 2:
        return operations
    return operations.pick(
        np.flatnonzero(devices.of(operations.places, operations.place_code) == gpu)
    )


def _of_calls(found: Attributed, calls: list[Array]) -> Attributed:
    """Leave out stage instances in which none of `calls` stands; paths stay as they are."""
    used = np.zeros(len(found.begin) + 1, bool)
    for call in calls:
        used[found.instance[call]] = True
    used[-1] = False  # -1 is no instance
    number = np.cumsum(used, dtype=np.int32) - np.int32(1)
    number[~used] = -1
    used_codes = np.flatnonzero(used)
    columns = (found.stage[used_codes], found.begin[used_codes], found.end[used_codes])
    stage, begin, end = columns
    return replace(found, instance=number[found.instance], stage=stage, begin=begin, end=end)


def gpu_stages(works: Sequence[tuple[int, Work]], stages: pd.DataFrame) -> pd.DataFrame:
    """Table `gpu_stages` of `by_gpu`; `stages` is that of the whole, whose wall time all share."""
    frames = []
    for gpu, work_of_gpu in works:
        frame = stages if len(works) == 1 else work_of_gpu.stages
        frame = frame[(frame["instances"] > 0) | (frame["stage"] == ALL)]
        is_capture = frame["stage"] == ALL
        frame.loc[is_capture, "wall_ns"] = stages["wall_ns"].iloc[0]
        frame.loc[is_capture, "idle_ns"] = frame["wall_ns"] - frame["gpu_busy_ns"]
        frame["kernel_busy_ns"] = _kernels_busy(work_of_gpu, frame["stage"].tolist())
        frames.append(frame.assign(gpu=gpu))
    if not frames:
        return tables.empty("gpu_stages")
    columns = [column.name for column in tables.tables()["gpu_stages"]]
    return tables.check(pd.concat(frames, ignore_index=True)[columns], "gpu_stages")


def _kernels_busy(work: Work, stages: list[str]) -> Array:
    """Time in which at least one kernel ran in each of `stages`, of which the first is all."""
    found, rows = work.attributed, work.kernels
    line = timeline([(rows.start, rows.duration)])
    of_stage = busy(found.stage_of(rows.call), line.start, line.end, len(found.stages))
    times = dict(zip(found.stages, of_stage.tolist(), strict=True)) | {ALL: line.busy_ns}
    return np.array([times[stage] for stage in stages], np.int64)
