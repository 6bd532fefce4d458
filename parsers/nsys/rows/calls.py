"""CUDA API calls of a trace, and for each GPU operation the one that issued it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from nsight_prof.parsers.nsys.sqlite.codes import STEP, Codebook, Columns, Threads, factor, short
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.leaves import Column
from nsight_prof.parsers.nsys.sqlite.schema import RUNTIME, check_times, read_strings

ABI_VERSION = re.compile(r"_v\d{4,5}$")  # cudaLaunchKernel_v7000; but cuMemAlloc_v2 is a name
CALL_MASK = (1 << 56) - 1
"""What keys of calls have: 32 bits of correlation, 24 of process."""
_BACKTRACE = 67  # TRACE_PROCESS_EVENT_CUDABACKTRACE
_ID, _PID = 0xFFFFFFFF, 0xFFFFFF
_NEVER = np.iinfo(np.int64).max
_COLUMNS = [
    *(Column("globalTid", 0), Column("correlationId", 0)),
    *(Column("start"), Column("end"), Column("nameId"), Column("eventClass", 0)),
]
T = TypeVar("T")


@dataclass
class ApiCalls:
    """CUDA API calls in the order of the file; times in ns from the start of the capture.

    `thread` is a code into the threads, `name` into `names`. `call` is what an operation that the
    call issued has in common with it: `call_key` of its process and correlation id.
    """

    start: Array
    duration: Array
    thread: Array
    name: Array
    call: Array
    names: list[str]


class Issued(Protocol):
    """GPU operations with the key of their API call."""

    call: Array


class Calls:
    """API calls that issued GPU work, on one axis over all threads, to place ranges on it.

    There are `count` calls, numbered by their key; `missing` of them are not in the export. All
    kernels of one graph launch share one call. `order` are the others by thread and start.
    """

    def __init__(self, start: Array, thread: Array, ids: Array) -> None:
        # Each column has as many rows as there are launches: work in place.
        self.count = len(start)
        unknown = thread < 0
        self.missing = int(np.count_nonzero(unknown))
        self.low = int(start.min(initial=_NEVER))
        self.span = int(start.max(initial=self.low, where=~unknown)) - self.low + 2
        start -= self.low
        for chunk in (slice(at, at + STEP) for at in range(0, len(start), STEP)):
            start[chunk] += thread[chunk] * np.int64(self.span)
        start[unknown] = _NEVER
        known = self.count - self.missing
        self.order = np.argsort(start, kind="stable")[:known].astype(np.int32)
        self.axis = np.full(known + 1, _NEVER)
        np.take(start, self.order, out=self.axis[:known])
        self.by_id = np.argsort(ids)
        self.ids = ids[self.by_id]

    def bases(self, thread_ids: Array) -> Array:
        """Where the axis of each thread begins; past the end for one without calls."""
        at = np.searchsorted(self.ids, thread_ids)
        at[at == len(self.ids)] = 0
        is_known = self.ids[at] == thread_ids
        bases: Array = np.where(is_known, self.by_id[at], len(self.ids)) * np.int64(self.span)
        return bases

    def locate(self, base: Array, start: Array, end: Array) -> tuple[Array, Array, Array]:
        """Place ranges on the axis: indices of those that enclose calls, first and last position.

        A range encloses the calls of its thread that start in [start, end); last is exclusive.
        `base` is where the axis of its thread begins.
        """
        first = np.searchsorted(self.axis, base + self._offset(start))
        end_at = base + self._offset(end)
        # Most ranges enclose no call: the next call comes after their end.
        hit = np.flatnonzero(self.axis[first] < end_at)
        last = np.searchsorted(self.axis, end_at[hit])
        return hit, first[hit].astype(np.int32), last.astype(np.int32)

    def _offset(self, time: Array) -> Array:
        offset: Array = np.clip(time, self.low, self.low + self.span - 1) - self.low
        return offset


def call_key(pid: Array, correlation: Array) -> Array:
    """What a call and the operations that it issued share: process and 32-bit correlation id."""
    key: Array = (pid.astype(np.int64) & _PID) << 32 | correlation.astype(np.int64) & _ID
    return key


def read_api_calls(db: Database, threads: Threads) -> ApiCalls:
    """Read every CUDA API call once, as columns of numbers; `threads` gets those that call."""
    none = np.empty(0, np.int64)
    table = db.table(RUNTIME)
    if table is None:
        return ApiCalls(none, none, none, none, none, [])
    book: Codebook[tuple[int, ...]] = Codebook()
    columns = Columns(db.most_rows(table), np.int64, np.uint32, np.int32, np.int32, np.int64)
    for numbers, threaded, names_of_chunk in scan_calls(db, table, _read_chunk):
        start, duration, key = numbers
        thread, name = threads.translate(*threaded), book.translate(*names_of_chunk)
        columns.append(start, duration, thread, name, key)
    texts = read_strings(db, [number for (number,) in book.keys])
    names = [ABI_VERSION.sub("", texts.get(number, f"call {number}")) for (number,) in book.keys]
    start, duration, thread, name, key = columns.finish()
    check_times(db, RUNTIME, None, duration)
    return ApiCalls(start, duration, thread, name, key, names)


def scan_calls(db: Database, table: str, read_chunk: Callable[[list[Array]], T]) -> Iterator[T]:
    """Read thread, key, start, end and name of all calls of table RUNTIME part by part."""

    def read(columns: list[Array]) -> T:
        thread, correlation, start, end, name, kind = columns
        key = call_key(thread >> 24, np.where(correlation == 0, -1, correlation))
        # nsys 2022.2 wrote calls with a backtrace a second time; its own `stats` counts them twice.
        is_first = kind != _BACKTRACE
        found = [thread, key, start, end, name]
        return read_chunk(found if is_first.all() else [column[is_first] for column in found])

    return db.scan(_COLUMNS, table, read)


_Coded = tuple[Array, list[tuple[int, ...]]]


def _read_chunk(columns: list[Array]) -> tuple[list[Array], _Coded, _Coded]:
    thread, key, start, end, name = columns
    return [start, short(end - start), key], factor([thread]), factor([name])


def place_calls(
    calls: ApiCalls, threads: Threads, operations: Sequence[Issued]
) -> tuple[Calls, Array]:
    """Find the API calls of all operations; in these, replace the keys by the calls' numbers.

    Also returns where in `calls` each number stands; -1 where the trace does not hold it.
    """
    for o in operations:
        o.call &= CALL_MASK
    key = _distinct([o.call for o in operations])
    for o in operations:
        o.call = _index_of(key, o.call)
    start, row = np.full(len(key), _NEVER), np.full(len(key), -1, np.int32)
    for at in range(0, len(calls.call) if len(key) else 0, STEP):
        chunk = slice(at, at + STEP)
        found = np.searchsorted(key, calls.call[chunk])
        found[found == len(key)] = 0
        hit = np.flatnonzero(key[found] == calls.call[chunk])
        found, begin = found[hit], calls.start[chunk][hit]
        # Of several calls of one correlation id the first to start is the program's own.
        before = start[found]
        np.minimum.at(start, found, begin)
        first = np.flatnonzero((begin < before) & (begin == start[found]))[::-1]
        row[found[first]] = at + hit[first]  # what is written last stays: the first of equal ones
    thread = np.append(calls.thread, np.int32(-1))[row]
    return Calls(start, thread, threads.ids), row


def _index_of(keys: Array, key: Array) -> Array:
    """Index of each of `key` in the sorted `keys`, which hold them all."""
    result = np.empty(len(key), np.int32)
    for start in range(0, len(key), STEP):
        result[start : start + STEP] = np.searchsorted(keys, key[start : start + STEP])
    return result


def _distinct(keys: list[Array]) -> Array:
    merged = np.concatenate(keys)
    if not (merged[1:] >= merged[:-1]).all():
        merged.sort()
    new = np.ones(len(merged), bool)
    np.not_equal(merged[1:], merged[:-1], out=new[1:])
    return merged if new.all() else merged[new]
