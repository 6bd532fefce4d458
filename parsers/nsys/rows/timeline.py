"""Adds up GPU operations by stage: kernel, memory and busy time (the union of all intervals)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.nsys.sqlite.codes import STEP, Codebook, Columns, factor, narrow, short
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.leaves import Column
from nsight_prof.parsers.nsys.sqlite.schema import PROCESS, check_times

ISSUED = [
    *(Column("start"), Column("end")),
    *(Column("globalPid", 0), Column("correlationId", 0), Column("deviceId", -1)),
]
"""What all GPU operations have."""


@dataclass
class Operations:
    """GPU operations as columns; `call` is the API call's key, later its index.

    `place_code` is a code into `places` (device and process).
    """

    start: Array
    duration: Array
    call: Array
    place_code: Array
    places: list[tuple[int, int]]

    def pick(self, at: Array) -> Operations:
        """Those at positions `at`, or where the mask `at` holds."""
        columns = (self.start[at], self.duration[at], self.call[at], self.place_code[at])
        return Operations(*columns, self.places)


@dataclass(frozen=True)
class Timeline:
    """GPU operations of all kinds, ordered by start, and the gaps in which none of them runs.

    `order` is where each operation stands in the kinds, one after the other. `after` is the index
    of the operation that ends each gap, `idle_from` the time when the gap begins.
    """

    start: Array
    end: Array
    order: Array
    after: Array
    idle_from: Array
    last_end: int

    @property
    def idle_until(self) -> Array:
        """The time when each gap ends."""
        return self.start[self.after]

    @property
    def busy_ns(self) -> int:
        """Time in which at least one operation runs."""
        if not len(self.start):
            return 0
        idle = (self.idle_until - self.idle_from).sum()
        return self.last_end - int(self.start[0]) - int(idle)

    def busy_until(self, times: Array) -> Array:
        """Time before each of `times` in which at least one operation runs."""
        if not len(self.start):
            return np.zeros(len(times), np.int64)
        until = self.idle_until
        idle = np.append(0, np.cumsum(until - self.idle_from))
        times = np.clip(times, self.start[0], self.last_end)
        begun = np.searchsorted(self.idle_from, times, "right")  # gaps that began before
        rest = np.maximum(np.append(self.start[:1], until)[begun] - times, 0)  # of the last one
        busy: Array = times - self.start[0] - idle[begun] + rest
        return busy


def timeline(operations: Sequence[tuple[Array, Array]]) -> Timeline:
    """Put kinds of operations, as start and duration, on one axis."""
    start = np.concatenate([start for start, _ in operations])
    end = np.concatenate([start + duration.astype(np.int64) for start, duration in operations])
    order = np.argsort(start, kind="stable").astype(np.int32)  # fast: each kind is in order
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    before = np.flatnonzero(start[1:] > reached[:-1])
    last = int(reached[-1]) if len(reached) else 0
    return Timeline(start, end, order, before + 1, reached[before], last)


def read_operations(db: Database, *names: str) -> Operations:
    """Read copies, memsets or whole CUDA graphs, ordered by start; none of an absent table."""
    tables = {name: table for name in names if (table := db.table(name))}
    size = sum(map(db.most_rows, tables.values()))
    columns = Columns(size, np.int64, np.uint32, np.int64, np.int16)
    places: Codebook[tuple[int, int]] = Codebook()
    for name, table in tables.items():
        for start, end, process, correlation, where in db.scan(ISSUED, table, list):
            duration, call = end - start, correlation | (process >> 24) << 32
            check_times(db, name, start, duration)
            codes, keys = factor([where, call >> 32 & PROCESS])
            device_code = places.translate(codes, [(key[0], key[1]) for key in keys])
            columns.append(start, short(duration), call, narrow(device_code, len(places.keys)))
    start, duration, call, device_code = columns.finish()
    order = np.argsort(start, kind="stable")
    columns_of = (start[order], duration[order], call[order], device_code[order])
    return Operations(*columns_of, places.keys)


def busy(group: Array, start: Array, end: Array, groups: int) -> Array:
    """Time in which at least one operation of a group runs, for each group; -1 is left out.

    The operations are ordered by start.
    """
    total = np.zeros(groups, np.int64)
    reached = np.full(groups, np.iinfo(np.int64).min)
    for at in range(0, len(start), STEP):
        chunk = slice(at, at + STEP)
        # Codes of 16 bits are sorted in a third of the time.
        order = np.argsort(narrow(group[chunk], groups), kind="stable")
        codes, begin, until = group[chunk][order], start[chunk][order], end[chunk][order]
        known = slice(int(np.searchsorted(codes, 0)), None)
        codes, begin, until = codes[known], begin[known], until[known]
        if not len(codes):
            continue
        begins = np.diff(codes, prepend=-1) > 0
        number = np.cumsum(begins) - 1
        low = int(begin.min())
        shift = number * (int(until.max()) - low + 1)  # the groups one after the other on one axis
        latest = np.maximum.accumulate(until - low + shift) - shift + low
        before = np.append(latest[:1], latest[:-1])
        before[begins] = begin[begins]
        before = np.maximum(before, reached[codes])
        added = np.maximum(until - np.maximum(begin, before), 0)
        total += np.bincount(codes, added, groups).astype(np.int64)
        lasts = np.append(np.flatnonzero(begins)[1:], len(codes)) - 1
        reached[codes[lasts]] = np.maximum(reached[codes[lasts]], latest[lasts])
    return total
