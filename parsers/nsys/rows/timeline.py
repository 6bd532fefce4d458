"""Adds up GPU operations by stage: kernel, memory and busy time (the union of all intervals)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.nsys.sqlite.codes import STEP, Codebook, Columns, factor, narrow, short
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.schema import ISSUED_KEY, PROCESS, check_times


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


def last_end(start: Array, duration: Array) -> int:
    """Latest of start + duration, without a column of sums."""
    chunks = (slice(at, at + STEP) for at in range(0, len(start), STEP))
    return max(int((start[chunk] + duration[chunk]).max()) for chunk in chunks)


def read_operations(db: Database, *names: str) -> Operations:
    """Read copies, memsets or whole CUDA graphs, ordered by start; none of an absent table."""
    tables = {name: table for name in names if (table := db.table(name))}
    size = sum(map(db.most_rows, tables.values()))
    columns = Columns(size, np.int64, np.uint32, np.int64, np.int16)
    places: Codebook[tuple[int, int]] = Codebook()
    for name, table in tables.items():
        device = "coalesce(deviceId, -1)" if "deviceId" in db.columns(name) else "-1"
        select = ["start", "end - start", ISSUED_KEY, device]
        for start, duration, call, where in db.scan(select, table, list):
            check_times(db, name, start, duration)
            codes, keys = factor([where, call >> 32 & PROCESS])
            device_code = places.translate(codes, [(key[0], key[1]) for key in keys])
            columns.append(start, short(duration), call, narrow(device_code, len(places.keys)))
    start, duration, call, device_code = columns.finish()
    order = np.argsort(start, kind="stable")
    columns_of = (start[order], duration[order], call[order], device_code[order])
    return Operations(*columns_of, places.keys)


def busy(operations: list[tuple[Array, Array, Array]], groups: int) -> Array:
    """Time in which at least one operation of a group ran, for each group.

    `operations` are (group, start, duration), each ordered by start; group -1 is left out.
    """
    total = np.zeros(groups, np.int64)
    reached = np.full(groups, np.iinfo(np.int64).min)
    for group, start, end in _merged(operations):
        order = np.argsort(group, kind="stable")
        group, start, end = group[order], start[order], end[order]
        if not len(group):
            continue
        begins = np.diff(group, prepend=-1) > 0
        number = np.cumsum(begins) - 1
        low = int(start.min())
        shift = number * (int(end.max()) - low + 1)  # the groups one after the other on one axis
        latest = np.maximum.accumulate(end - low + shift) - shift + low
        before = np.concatenate([latest[:1], latest[:-1]])
        before[begins] = start[begins]
        before = np.maximum(before, reached[group])
        added = np.maximum(end - np.maximum(start, before), 0)
        total += np.bincount(group, added, groups).astype(np.int64)
        np.maximum.at(reached, group, end)
    return total


def busy_until(operations: list[tuple[Array, Array, Array]], times: Array) -> Array:
    """Time before each of `times` in which at least one operation ran, of whatever group."""
    result = np.zeros(len(times), np.int64)
    order = np.argsort(times, kind="stable")
    asked, done = times[order], 0
    total, reached = 0, -(2**62)
    for _, start, end in _merged(operations):
        if not len(start):
            continue
        before = np.maximum.accumulate(np.concatenate([[reached], end[:-1]]))
        begins = np.maximum(start, before)
        lengths = np.maximum(end - begins, 0)
        sums = np.concatenate([[0], np.cumsum(lengths)])
        upto = int(np.searchsorted(asked, start[-1], "right"))
        chunk = asked[done:upto]
        last = np.searchsorted(begins, chunk, "right") - 1
        inside = sums[last] + np.clip(chunk - begins[last], 0, lengths[last])
        still_running = np.minimum(chunk - reached, 0)
        result[order[done:upto]] = total + np.where(last < 0, still_running, inside)
        done, reached, total = upto, max(reached, int(end.max())), total + int(sums[-1])
    # After the last start the GPU is busy without a break until all is done.
    result[order[done:]] = total + np.minimum(asked[done:] - reached, 0)
    return result


def _merged(
    operations: list[tuple[Array, Array, Array]],
) -> Iterator[tuple[Array, Array, Array]]:
    """All operations as (group, start, end) in parts that follow each other in time."""
    longest = max(operations, key=lambda columns: len(columns[1]))[1]
    cuts = [*longest[STEP::STEP].tolist(), np.iinfo(np.int64).max]
    done = [0] * len(operations)
    for cut in cuts:
        chunk = []
        for i, (group, start, duration) in enumerate(operations):
            upto = int(np.searchsorted(start, cut, "right"))
            piece = slice(done[i], upto)
            done[i] = upto
            begin = start[piece]
            chunk.append((group[piece], begin, begin + duration[piece].astype(np.int64)))
        group, start, end = (np.concatenate(columns) for columns in zip(*chunk, strict=True))
        order = np.argsort(start, kind="stable")
        order = order[group[order] >= 0]
        yield group[order], start[order], end[order]
