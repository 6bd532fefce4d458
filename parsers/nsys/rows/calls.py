"""Finds, for each GPU operation, the CUDA API call that issued it: its thread and start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from nsight_prof.parsers.nsys.sqlite.codes import STEP, Codebook, factor
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.schema import CALL_KEY, RUNTIME

_NEVER = np.iinfo(np.int64).max


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

    def locate(self, thread_id: Array, start: Array, end: Array) -> tuple[Array, Array, Array]:
        """Place ranges on the axis: indices of those that enclose calls, first and last position.

        A range encloses the calls of its thread that start in [start, end); last is exclusive.
        """
        at = np.searchsorted(self.ids, thread_id)
        at[at == len(self.ids)] = 0
        index = np.flatnonzero(self.ids[at] == thread_id)
        base = self.by_id[at[index]] * np.int64(self.span)
        first = np.searchsorted(self.axis, base + self._offset(start[index]))
        end_at = base + self._offset(end[index])
        # Most ranges enclose no call: the next call comes after their end.
        hit = np.flatnonzero(self.axis[first] < end_at)
        last = np.searchsorted(self.axis, end_at[hit])
        return index[hit], first[hit].astype(np.int32), last.astype(np.int32)

    def _offset(self, time: Array) -> Array:
        offset: Array = np.clip(time, self.low, self.low + self.span - 1) - self.low
        return offset


def read_calls(db: Database, operations: Sequence[Issued]) -> Calls:
    """Read the API calls of all operations; in these, replace the keys by the calls' numbers."""
    return Calls(*_find(db, operations))


def _find(db: Database, operations: Sequence[Issued]) -> tuple[Array, Array, Array]:
    """Start and thread of each call, and the globalTid of each thread."""
    key = _distinct([o.call for o in operations])
    for o in operations:
        o.call = _index_of(key, o.call)
    start = np.full(len(key), _NEVER)
    thread = np.full(len(key), -1, np.int32)
    threads: Codebook[tuple[int, ...]] = Codebook()

    def read_chunk(columns: list[Array]) -> tuple[Array, Array, Array, list[tuple[int, ...]]]:
        found = np.searchsorted(key, columns[0])
        found[found == len(key)] = 0
        hit = np.flatnonzero(key[found] == columns[0])
        codes, tids = factor([columns[1][hit]])
        return found[hit].astype(np.int32), columns[2][hit], codes, tids

    table = db.table(RUNTIME)
    select = [CALL_KEY, "coalesce(globalTid, 0)", "start"]
    for at, begin, codes, tids in db.scan(select, table, read_chunk) if table else ():
        # One correlation id may stand on a call and on its backtrace event: the first to start
        # is the program's own.
        np.minimum.at(start, at, begin)
        is_found = begin == start[at]
        thread[at[is_found]] = threads.translate(codes, tids)[is_found]
    return start, thread, np.array([tid for (tid,) in threads.keys], np.int64)


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
