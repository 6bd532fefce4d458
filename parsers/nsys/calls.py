"""Finds, for each GPU operation, the CUDA API call that issued it: its thread and start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsers.nsys.codes import STEP, Codebook, factor
from parsers.nsys.database import Array, Database
from parsers.nsys.kernels import CALL_KEY
from parsers.nsys.schema import RUNTIME

_NEVER = np.iinfo(np.int64).max


@dataclass
class Calls:
    """API calls that issued GPU work, ordered by key (process and correlation id).

    `start` is the host time, `thread` an index into `threads` (globalTid); -1 where the export
    holds no such call. All kernels of one graph launch share one call.
    """

    key: Array
    start: Array
    thread: Array
    threads: Array

    @property
    def missing(self) -> int:
        """Number of calls that issued GPU work but are not in the export."""
        return int((self.thread < 0).sum())


def index_of(keys: Array, key: Array) -> Array:
    """Replace each of `key` by its index in the sorted `keys`, which hold them all."""
    result = np.empty(len(key), np.int32)
    for start in range(0, len(key), STEP):
        result[start : start + STEP] = np.searchsorted(keys, key[start : start + STEP])
    return result


def read_calls(db: Database, keys: list[Array]) -> Calls:
    """Read the API calls of all GPU operations whose call keys are `keys`."""
    key = _distinct(keys)
    start = np.full(len(key), _NEVER)
    thread = np.full(len(key), -1, np.int32)
    threads: Codebook[tuple[int, ...]] = Codebook()

    def part(columns: list[Array]) -> tuple[Array, Array, Array, list[tuple[int, ...]]]:
        found = np.searchsorted(key, columns[0])
        found[found == len(key)] = 0
        hit = np.flatnonzero(key[found] == columns[0])
        codes, tids = factor([columns[1][hit]])
        return found[hit].astype(np.int32), columns[2][hit], codes, tids

    table = db.table(RUNTIME)
    select = [CALL_KEY.format(pid="globalTid"), "globalTid", "start"]
    for at, begin, codes, tids in db.scan(select, table, part) if table else ():
        # One correlation id may stand on a runtime call and the driver call inside it: the
        # first to start is the program's own.
        np.minimum.at(start, at, begin)
        mine = begin == start[at]
        thread[at[mine]] = threads.translate(codes, tids)[mine]
    return Calls(key, start, thread, np.array([tid for (tid,) in threads.keys], np.int64))


def _distinct(keys: list[Array]) -> Array:
    merged = np.concatenate(keys)
    if not (merged[1:] >= merged[:-1]).all():
        merged.sort()
    return merged[np.diff(merged, prepend=merged[:1] - 1) > 0]


def call_order(calls: Calls) -> Array:
    """Indices of the calls that are in the export, by thread and start."""
    known = np.flatnonzero(calls.thread >= 0).astype(np.int32)
    order: Array = known[np.lexsort((calls.start[known], calls.thread[known]))]
    return order
