"""Table `engine_steps`: each step of an inference engine on each GPU, busy and idle.

A step's GPU work is what its process issued from the start of the step's range to the start of the
next one's: vLLM samples after the range. The host runs ahead, so that this work lies later than
the range. Step i has the GPU's time from the start of its first operation to that of step i + 1:
the periods cover the whole span without a hole, and busy + idle = period.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.engine.collectives import Collectives, waits
from nsight_prof.parsers.nsys.engine.ranges import StepRange
from nsight_prof.parsers.nsys.engine.work import RankWork, Windows, find_windows
from nsight_prof.parsers.nsys.rows.timeline import Timeline, timeline
from nsight_prof.parsers.nsys.sqlite.database import Array


def engine_steps(works: list[RankWork], causes: list[dict[int, str]]) -> pd.DataFrame:
    """Table `engine_steps`.

    Args:
        works: GPU work of each rank.
        causes: for each rank, what the host did for most of the idle time after a step.
    """
    collectives = waits(works)
    frames = [
        _of_rank(work, cause, collective)
        for work, cause, collective in zip(works, causes, collectives, strict=True)
    ]
    if not frames:
        return tables.empty("engine_steps")
    frame = pd.concat(frames, ignore_index=True)
    return tables.check(frame.sort_values(["step", "pid", "device"]), "engine_steps")


def _of_rank(work: RankWork, cause: dict[int, str], collectives: Collectives) -> pd.DataFrame:
    windows = find_windows(work)
    count = len(work.steps)
    frame = pd.DataFrame([_host(step) for step in work.steps]).assign(device=work.device)
    in_step = work.step >= 0
    duration = (work.end - work.start).astype(np.int64)
    kernel, memory = in_step & work.is_kernel, in_step & ~work.is_kernel
    frame["launches"] = np.bincount(work.step[kernel], minlength=count)
    frame["kernel_ns"] = _sum(work.step[kernel], duration[kernel], count)
    frame["memory_ns"] = _sum(work.step[memory], duration[memory], count)
    frame["collective_ns"] = _sum(work.step[collectives.mask], duration[collectives.mask], count)
    for names, mask in (
        (["launches", "kernel_ns", "collective_ns"], work.is_kernel),
        (["memory_ns"], ~work.is_kernel),
    ):
        if mask.any() and (work.call_end[mask] < 0).all():  # no call tells in which step they were
            frame[names] = pd.NA
    frame["collective_wait_ns"] = pd.array(collectives.wait_ns, dtype="Int64")
    timed = pd.DataFrame(_timed(work, windows), index=windows.index).astype("Int64")
    frame = frame.join(timed)
    frame["cause"] = [cause.get(step.index) for step in work.steps]
    return frame


def _host(step: StepRange) -> dict[str, object]:
    return {
        "step": step.index,
        "pid": step.pid,
        "kind": step.kind,
        "prefill_requests": step.prefill_requests,
        "prefill_tokens": step.prefill_tokens,
        "decode_requests": step.decode_requests,
        "decode_tokens": step.decode_tokens,
        "host_start_ns": step.start,
        "host_ns": step.end - step.start,
    }


def _timed(work: RankWork, windows: Windows) -> dict[str, object]:
    """Columns of the steps that have GPU work; the last has no period."""
    inside_end = np.minimum(windows.end, windows.until)
    everything = timeline([(work.start, work.end - work.start)])
    busy = _within(everything, windows.begin, windows.until)
    inside = inside_end - windows.begin - _within(everything, windows.begin, inside_end)
    period = pd.array(windows.until - windows.begin, dtype="Int64")
    idle = period - busy
    after = idle - inside
    if len(windows.index):
        period[-1] = idle[-1] = after[-1] = pd.NA
    return {
        "gpu_start_ns": windows.begin,
        "gpu_end_ns": windows.end,
        "period_ns": period,
        "busy_ns": busy,
        "idle_ns": idle,
        "idle_inside_ns": inside,
        "idle_after_ns": after,
        "collective_exposed_ns": _exposed(work, windows),
    }


def _exposed(work: RankWork, windows: Windows) -> Array:
    """Time in which collectives ran and no other kernel of the device did."""
    duration = work.end - work.start
    kernels, rest = work.is_kernel, work.is_kernel & ~work.collective
    spans = [
        _within(timeline([(work.start[mask], duration[mask])]), windows.begin, windows.until)
        for mask in (kernels, rest)
    ]
    exposed: Array = spans[0] - spans[1]
    return exposed


def _within(operations: Timeline, begin: Array, end: Array) -> Array:
    """Time of the union of the operations in each [begin, end)."""
    within: Array = operations.busy_until(end) - operations.busy_until(begin)
    return within


def _sum(step: Array, values: Array, count: int) -> Array:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, step, values)
    return sums
