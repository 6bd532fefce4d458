"""Tables `idle_gaps` and `gpu_idle_gaps`: when a GPU had nothing to do, and what the host did then.

A gap is a time in which no kernel, copy or memset ran: on any GPU in the first table, on one of
them in the second. It ends with an operation, and
the CUDA call that issued this operation tells whose the gap is: a call that had returned before the
gap began leaves it to the GPU; otherwise the host was late, because it waited for the GPU to run
dry first, because it was busy with something long, or because it launches no faster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.names.ranges import Stages, fold_repeats, shorten
from nsight_prof.parsers.nsys.rows.calls import ApiCalls, Calls
from nsight_prof.parsers.nsys.rows.nvtx import read_nvtx
from nsight_prof.parsers.nsys.sqlite.codes import STEP, Threads, code_rows, counts, totals
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.schema import (
    OPEN_END,
    RUNTIME,
    check_times,
)
from nsight_prof.parsers.nsys.stages.stages import attribute_calls
from nsight_prof.parsers.nsys.stages.work import Attributed, Work

QUEUED, LAUNCHES, SYNCHRONISATION, HOST = "queued", "launches", "synchronisation", "host"
UNKNOWN = "unknown"
_CAUSES = (QUEUED, LAUNCHES, SYNCHRONISATION, HOST, UNKNOWN)
LONG_GAP_NS = 100_000
"""From here on the host did something else than launch: a launch takes it under 20 us, and eager
frameworks some tens of us between two launches, even when traced."""
LONG_CALL_NS = 20_000
HOST_SHARE = 0.05
"""Part of the time from the first work to the last that the host must do something else, so that
the ranges in which it is are read: that costs another pass over all of them."""
_OF_CALL = ["late_calls", "before_call_ns", "in_call_ns"]
_WAITING = re.compile(r".*ynchronize.*|cu.*Memcpy.*", re.IGNORECASE | re.DOTALL)
"""Names of calls that may wait for the GPU."""


@dataclass(frozen=True)
class _Gaps:
    """Gaps in order; `op` and `before` index all operations, `issuer` is the call of `op`."""

    start: Array
    end: Array
    op: Array
    before: Array
    issuer: Array


@dataclass(frozen=True)
class _Pieces:
    """Parts of gaps: gap, stage and path as codes (stage -1 for none, path 0 for none), in time."""

    gap: Array
    stage: Array
    path: Array
    start: Array
    end: Array


@dataclass(frozen=True)
class _GapCauses:
    """Of each gap: cause (index into _CAUSES), ids of calls, bounds of the call that ended it, its
    thread, and the range in which a busy host was before it.

    Calls are codes of names, -1 for none: the one that waited, and the one that took the time.
    Ranges are codes of names, too, 0 for none.
    """

    cause: Array
    waited: Array
    inside: Array
    call_start: Array
    call_end: Array
    thread: Array
    host_range: Array


@dataclass(frozen=True)
class _Calls:
    """CUDA calls as columns; `name` and `thread` are codes."""

    thread: Array
    start: Array
    end: Array
    name: Array

    def pick(self, at: Array) -> _Calls:
        return _Calls(*(c[at] for c in (self.thread, self.start, self.end, self.name)))


def idle_gaps(
    db: Database,
    work: Work,
    works: Sequence[tuple[int, Work]],
    stages: Stages,
    calls: ApiCalls,
    threads: Threads,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return tables `idle_gaps` and `gpu_idle_gaps`; empty where the trace has no CUDA calls.

    `works` is the work of each GPU.
    """
    if not len(calls.start):
        return tables.empty("idle_gaps"), tables.empty("gpu_idle_gaps")
    check_times(db, RUNTIME, calls.start, calls.duration)
    views = [work, *(of_gpu for _, of_gpu in works)] if len(works) > 1 else [work]
    gaps = [_find_gaps(view) for view in views]
    waiting = np.array([_WAITING.fullmatch(name) is not None for name in calls.names])
    long = _long(calls, waiting)
    causes = [_causes(of_view, calls, long, waiting) for of_view in gaps]
    hosts = _in_ranges(db, threads, stages, gaps, causes)
    frames = [
        _frame(calls.names, hosts, view, of_view, cause)
        for view, of_view, cause in zip(views, gaps, causes, strict=True)
    ]
    capture, *each = frames
    # The gaps of the only GPU are those of the whole.
    each = each or [capture] * len(works)
    rows = [frame.assign(gpu=gpu) for (gpu, _), frame in zip(works, each, strict=True)]
    both = pd.concat(rows, ignore_index=True) if rows else tables.empty("gpu_idle_gaps")
    return tables.check(capture, "idle_gaps"), tables.check(both, "gpu_idle_gaps")


def _frame(
    calls: list[str], hosts: list[str], work: Work, gaps: _Gaps, causes: _GapCauses
) -> pd.DataFrame:
    """Add up pieces of gaps by stage, cause, call and range."""
    pieces = _by_stage(gaps, work)
    gap, length = pieces.gap, pieces.end - pieces.start
    by = {
        "stage": pieces.stage,
        "cause": causes.cause[gap],
        "waited": causes.waited[gap],
        "call": causes.inside[gap],
        "nvtx_range": pieces.path,
        "host_range": causes.host_range[gap],
    }
    codes, first = code_rows(list(by.values()))
    size = len(first)
    longest = np.zeros(size, np.int64)
    np.maximum.at(longest, codes, length)
    keys = {name: column[first].tolist() for name, column in by.items()}
    # Of the time before the call that ended the gap, and in it: not known without that call.
    begun = np.clip(causes.call_start[gap], pieces.start, pieces.end)
    done = np.clip(causes.call_end[gap], pieces.start, pieces.end)
    late = causes.call_start[gap] >= gaps.start[gap]
    known = by["cause"][first] != _CAUSES.index(UNKNOWN)
    of_call = {
        name: pd.array(totals(codes, column, size), dtype="Int64")
        for name, column in zip(_OF_CALL, (late, begun - pieces.start, done - begun), strict=True)
    }
    for column in of_call.values():
        column[~known] = pd.NA
    names = [*calls, ""]
    stages, labels = [*work.attributed.stages, ""], _range_names(work.attributed)
    frame = pd.DataFrame(
        {
            "stage": [stages[code] for code in keys["stage"]],
            "cause": [_CAUSES[code] for code in keys["cause"]],
            "waited": [names[code] for code in keys["waited"]],
            "call": [names[code] for code in keys["call"]],
            "nvtx_range": [labels[code] for code in keys["nvtx_range"]],
            "host_range": [hosts[code] for code in keys["host_range"]],
            "gaps": counts(codes, size),
            "idle_ns": totals(codes, length, size),
            "longest_ns": longest,
            **of_call,
        }
    )
    again = frame.groupby([*by])
    summed = again.agg({"gaps": "sum", "idle_ns": "sum", "longest_ns": "max"})
    frame = summed.join(again[_OF_CALL].sum(min_count=1)).reset_index()
    return frame.sort_values(["idle_ns", *by], ascending=False)


def _find_gaps(work: Work) -> _Gaps:
    line = work.timeline
    op, before = line.order[line.after], line.order[line.after - 1]
    issuer = work.issuers[_calls_of(work)[op]]
    return _Gaps(line.idle_from, line.idle_until, op, before, issuer)


def _calls_of(work: Work) -> Array:
    """The call of each operation, one kind after the other."""
    return np.concatenate([o.call for o in work.operations])


def _long(calls: ApiCalls, waiting: Array) -> _Calls:
    """Return by thread and start the calls that wait or take long.

    `waiting` says of each name of calls whether it waits.
    """
    found = []
    for first in range(0, len(calls.start), STEP):
        chunk = slice(first, first + STEP)
        is_long = (calls.duration[chunk] >= LONG_CALL_NS) | waiting[calls.name[chunk]]
        found.append(first + np.flatnonzero(is_long))
    slow = _picked(calls, np.concatenate(found))
    return slow.pick(np.lexsort((slow.start, slow.thread)))


def _picked(calls: ApiCalls, at: Array) -> _Calls:
    start = calls.start[at]
    end = start + calls.duration[at].astype(np.int64)
    return _Calls(calls.thread[at], start, end, calls.name[at])


def _causes(gaps: _Gaps, calls: ApiCalls, long: _Calls, waiting: Array) -> _GapCauses:
    size = len(gaps.start)
    cause = np.full(size, _CAUSES.index(UNKNOWN), np.int8)
    waited, inside = np.full(size, -1, np.int32), np.full(size, -1, np.int32)
    known, call = gaps.issuer >= 0, _picked(calls, gaps.issuer)
    late = known & (call.end > gaps.start)
    cause[known & ~late] = _CAUSES.index(QUEUED)
    cause[late] = _CAUSES.index(LAUNCHES)
    cause[late & (gaps.end - gaps.start >= LONG_GAP_NS)] = _CAUSES.index(HOST)
    # In progress when the GPU ran dry, and done before the call that ended the gap: it waited.
    # Among waiting calls only: a long one that starts as a wait ends would hide it.
    waits = long.pick(np.flatnonzero(waiting[long.name]))
    in_progress = _in_progress(waits, call.thread, gaps.start)
    ended = np.append(waits.end, 0)[in_progress]
    name = np.append(waits.name, -1)[in_progress]
    dry = late & (in_progress >= 0) & (ended <= call.start)
    waited[dry] = name[dry]
    cause[dry & (cause == _CAUSES.index(LAUNCHES))] = _CAUSES.index(SYNCHRONISATION)
    # A call that fills more than half of the time before the launch is in progress in its middle.
    ready = np.clip(call.start, gaps.start, gaps.end)
    middle = _in_progress(long, call.thread, (gaps.start + ready) // 2)
    begun = np.maximum(np.append(long.start, 0)[middle], gaps.start)
    filled = np.minimum(np.append(long.end, 0)[middle], ready) - begun
    late_launch = late & (middle >= 0) & (2 * filled > ready - gaps.start)
    inside[late_launch] = np.append(long.name, -1)[middle][late_launch]
    # Else several that fill it together, as frees and allocations do one after another.
    others = long.pick(np.flatnonzero(~waiting[long.name]))
    lasts = others.end - others.start
    begun_before = np.append(0, np.cumsum(lasts))
    first, behind = (_begun(others, call.thread, time) for time in (gaps.start, ready))
    together = begun_before[behind] - begun_before[first]
    for gap in np.flatnonzero(late & (inside < 0) & (2 * together > ready - gaps.start)):
        of_gap = slice(first[gap], behind[gap])
        inside[gap] = others.name[of_gap][np.argmax(lasts[of_gap])]
    return _GapCauses(
        cause, waited, inside, call.start, call.end, call.thread, np.zeros(size, np.int32)
    )


def _in_ranges(
    db: Database, threads: Threads, stages: Stages, gaps: list[_Gaps], causes: list[_GapCauses]
) -> list[str]:
    """Write into `causes` the range in which a host is that does something else; return the names.

    That is the innermost one open on its thread in the middle of the time before it launches.
    """
    lengths = gaps[0].end - gaps[0].start
    lost = lengths[causes[0].cause == _CAUSES.index(HOST)].sum()
    if not lost or lost < HOST_SHARE * (gaps[0].end[-1] - gaps[0].start[0]):
        return [""]
    at = [np.flatnonzero(cause.cause == _CAUSES.index(HOST)) for cause in causes]
    middle, thread = [], []
    for of_view, cause, host in zip(gaps, causes, at, strict=True):
        start = of_view.start[host]
        middle.append((start + np.clip(cause.call_start[host], start, of_view.end[host])) // 2)
        thread.append(cause.thread[host])
    calls = Calls(np.concatenate(middle), np.concatenate(thread), threads.ids)
    nvtx = read_nvtx(db, threads)
    found = attribute_calls(nvtx, calls, threads.ids, stages)
    done = 0
    for cause, host in zip(causes, at, strict=True):
        cause.host_range[host] = found.path[done : done + len(host)]
        done += len(host)
    return _range_names(found)


def _in_progress(calls: _Calls, thread: Array, time: Array) -> Array:
    """Index of the call that each thread is in at its time; -1 where it is in none of `calls`."""
    if not len(calls.start):
        return np.full(len(time), -1)
    at = _begun(calls, thread, time + 1) - 1
    found = (at >= 0) & (calls.thread[at] == thread) & (calls.end[at] >= time)
    return np.where(found, at, -1)


def _begun(calls: _Calls, thread: Array, time: Array) -> Array:
    """Return how many calls come before those of each thread that begin at its time or later."""
    if not len(calls.start):
        return np.zeros(len(time), np.int64)
    threads = np.unique(calls.thread)
    low = int(min(calls.start.min(), time.min(initial=0)))
    span = int(max(calls.start.max(), time.max(initial=0))) - low + 2
    code = np.minimum(np.searchsorted(threads, thread), len(threads) - 1)
    axis = np.searchsorted(threads, calls.thread) * span + calls.start - low
    return np.searchsorted(axis, code * span + time - low, "left")


def _by_stage(gaps: _Gaps, work: Work) -> _Pieces:
    """Split each gap at the ranges of stages.

    The time before a range is of no stage, that from the last operation of a range to its end is.
    """
    found, call = work.attributed, _calls_of(work)
    instance = found.instance[call]
    after, before = instance[gaps.op], instance[gaps.before]
    begin = np.append(found.begin, 0)[after]
    ends = np.where(found.end == OPEN_END, found.begin, found.end)
    until = np.append(ends, 0)[before]
    from_own = np.where(after >= 0, np.clip(begin, gaps.start, gaps.end), gaps.end)
    from_before = np.where(
        (before >= 0) & (before != after), np.clip(until, gaps.start, from_own), gaps.start
    )
    where = found.path[call[gaps.op]]
    codes = np.append(found.stage, np.int32(-1))
    nowhere = np.int32(-1)
    pieces_of_stages = (
        (codes[after], np.where(after >= 0, where, 0), from_own, gaps.end),
        (np.broadcast_to(nowhere, len(after)), where, from_before, from_own),
        (codes[before], np.broadcast_to(np.int32(0), len(after)), gaps.start, from_before),
    )
    found_pieces = []
    for stage, path, start, end in pieces_of_stages:
        at = np.flatnonzero(end > start).astype(np.int32)
        found_pieces.append((at, stage[at], path[at], start[at], end[at]))
    return _Pieces(*(np.concatenate(column) for column in zip(*found_pieces, strict=True)))


def _range_names(found: Attributed) -> list[str]:
    """Name of the innermost range of each path, without the numbers that tell repeats apart."""
    inner = {path[-1] for path in found.paths if path}
    names = dict(zip(inner, fold_repeats([shorten(found.labels[i]) for i in inner]), strict=True))
    return [names[path[-1]] if path else "" for path in found.paths]
