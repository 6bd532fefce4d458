"""Table `host_ranges`: what a timeline shows of the NVTX ranges of the busiest threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.bins import Segments, reduced
from nsight_prof.parsers.nsys.rows.calls import ApiCalls
from nsight_prof.parsers.nsys.rows.nvtx import PUSH_POP, NvtxEvents
from nsight_prof.parsers.nsys.rows.threads import Thread
from nsight_prof.parsers.nsys.sqlite.codes import counts
from nsight_prof.parsers.nsys.sqlite.database import Array
from nsight_prof.parsers.nsys.sqlite.schema import OPEN_END

MOST_THREADS, DEEPEST, MOST_SEGMENTS = 8, 6, 60_000
"""Threads that are kept, levels of nesting, and segments of each level of a thread."""
_NEAR = 1 << 14  # ranges at a time: the processor keeps their ends


def busiest(calls: ApiCalls, ranges: Array) -> list[int]:
    """Threads with most calls and ranges, in their order; `ranges` is the number of each thread."""
    weight = ranges + counts(calls.thread, len(ranges))
    found = np.argsort(-weight, kind="stable")[:MOST_THREADS]
    return sorted(found[weight[found] > 0].tolist())


def host_ranges(nvtx: NvtxEvents, calls: ApiCalls, threads: list[Thread]) -> pd.DataFrame:
    """Return table `host_ranges`; a range that was not closed ends with the last call."""
    pushed = nvtx.kind == nvtx.kinds.index(PUSH_POP)
    last = int((calls.start + calls.duration).max(initial=0))
    frames = []
    thread = nvtx.thread if pushed.all() else nvtx.thread[pushed]
    for code in busiest(calls, counts(thread, len(threads))):
        is_here = pushed & (nvtx.thread == code)
        start, end, name = (column[is_here] for column in (nvtx.start, nvtx.end, nvtx.name))
        if len(start):
            if (start[1:] < start[:-1]).any():  # seldom: nsys writes by start
                order = np.argsort(start, kind="stable")  # fast where few are out of place
                start, end, name = start[order], end[order], name[order]
                del order
            end[end == OPEN_END] = max(last, int(start[-1]))
            levels = _levels(start, np.maximum(end, start, out=end), name)
            frames += [_frame(found, threads[code], depth) for depth, found in enumerate(levels)]
    if not frames:
        return tables.empty("host_ranges")
    frame = pd.concat(frames, ignore_index=True)
    codes, labels = pd.factorize(pd.Series(nvtx.labels, dtype="string"))
    frame["nvtx_range"] = pd.Categorical.from_codes(codes[frame["nvtx_range"]], labels)
    return tables.check(frame, "host_ranges")


def _levels(start: Array, end: Array, name: Array) -> Iterator[Segments]:
    """Yield the ranges of a thread, which are by start, by depth, outermost first.

    Deeper ones are of the last level.
    """
    if ((start[1:] == start[:-1]) & (end[1:] > end[:-1])).any():
        order = np.lexsort((-end, start))
        start, end, name = start[order], end[order], name[order]
    # Of nested ranges by start, those that began before and have not ended are around it.
    still, depth = np.empty(0, np.int64), np.empty(len(start), np.int8)
    first = 0
    while first < len(start):
        until = start[min(first + _NEAR, len(start)) - 1]
        upto = int(np.searchsorted(start, until, "right"))
        ends = np.sort(np.append(still, end[first:upto]))
        around = np.arange(len(still), len(still) + upto - first)
        around -= np.searchsorted(ends, start[first:upto], "right")
        depth[first:upto] = np.clip(around, 0, DEEPEST - 1)
        still = ends[np.searchsorted(ends, until, "right") :]
        first = upto
    for level in range(int(depth.max()) + 1):
        is_here = depth == level
        codes, names = pd.factorize(name[is_here])
        begin, lasts = start[is_here], end[is_here]
        lasts -= begin
        segments = reduced(begin, lasts, codes, MOST_SEGMENTS)
        yield replace(segments, item=names[segments.item])


def _frame(found: Segments, thread: Thread, depth: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "pid": thread.pid,
            "tid": thread.tid,
            "thread": thread.name,
            "depth": depth,
            "nvtx_range": found.item,
            "start_ns": found.start,
            "duration_ns": found.duration,
            "busy_ns": found.busy,
            "ranges": found.count,
            "bin_ns": found.width,
        }
    )
