"""Gives calls of threads without NVTX ranges the stage that is open on their program's one thread.

NVTX ranges belong to a thread, and torch runs the backward pass on a thread of its own: without
this, the kernels of `with nvtx.annotate("backward"): loss.backward()` are in no stage (seen with
torch 2.11 and nsys 2025.3.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsers.nsys.calls import Calls
from parsers.nsys.database import Array
from parsers.nsys.nvtx import Ranges

_PROCESS = ~0xFFFFFF  # a globalTid without its thread


@dataclass
class Threads:
    """Threads of the calls: those of `ranged` have NVTX ranges around calls, `bare` have none.

    A thread is (process, first position, last position (exclusive)) in the calls' order; for a
    bare one `times` has the start of each call.
    """

    ranged: list[tuple[int, int, int]]
    bare: list[tuple[int, int, int]]
    times: list[Array]


def split_threads(calls: Calls, ranges: Ranges) -> Threads:
    """Tell the threads that have ranges from those that have none."""
    found = Threads([], [], [])
    process_of = np.empty(len(calls.ids), np.int64)
    process_of[calls.by_id] = calls.ids & _PROCESS
    for thread, process in enumerate(process_of.tolist()):
        base = thread * calls.span
        low, high = (int(at) for at in np.searchsorted(calls.axis, [base, base + calls.span]))
        high = min(high, len(calls.order))
        if low == high:
            continue
        at = int(np.searchsorted(ranges.first, low, sorter=ranges.order))
        if at < len(ranges.order) and ranges.first[ranges.order[at]] < high:
            found.ranged.append((process, low, high))
        else:
            found.bare.append((process, low, high))
            found.times.append(calls.axis[low:high] - (base - calls.low))
    return found


def inherit_stages(threads: Threads, ranges: Ranges, instance: Array) -> int:
    """Write the stage of calls of bare threads into `instance`; return how many calls got one.

    Only where exactly one thread of the process has stages: of two, none is the right one.
    """
    inherited = 0
    staged: dict[int, list[Array]] = {}
    for process, low, high in threads.ranged:
        part = instance[low:high]
        stages = np.unique(part[part >= 0])
        if len(stages):
            staged.setdefault(process, []).append(stages)
    for (process, low, high), times in zip(threads.bare, threads.times, strict=True):
        if len(staged.get(process, ())) != 1:
            continue
        (stages,) = staged[process]
        stages = stages[np.argsort(ranges.start[stages], kind="stable")]
        at = np.searchsorted(ranges.start[stages], times, "right") - 1
        inside = (at >= 0) & (times < ranges.end[stages][at])
        instance[low:high][inside] = stages[at[inside]]
        inherited += int(np.count_nonzero(inside))
    return inherited
