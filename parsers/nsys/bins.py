"""Level of detail of one row of a timeline: single events, or bins where there are too many.

A bin adds up the events of one item (a kernel in a stage, a function, a range) that are shorter
than the bin is wide, each with the part of it that lies within the bin; longer events stay single.
What is drawn in a bin's place differs from the events by less than its width, and no time is lost:
the busy time of each item is that of the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_CELLS = 8
"""Cells (bins x items) that are counted per segment that is kept: most of them are empty."""
_AT_ONCE = 1 << 18  # events that are counted at a time, so that temporaries stay small


@dataclass(frozen=True)
class Segments:
    """What a row of a timeline shows, by start; columns of equal length, times in ns.

    A single event has `count` 1 and is busy for its whole `duration`. A bin begins at a multiple of
    `width` after `origin`, lasts `width`, and stands for the events of one `item`: `count` of them
    begin in it, and `busy` is their time in it. `width` 0: all events are single ones.
    """

    start: Array
    duration: Array
    item: Array
    busy: Array
    count: Array
    width: int = 0
    origin: int = 0

    def __len__(self) -> int:
        return len(self.start)


def single(start: Array, duration: Array, item: Array) -> Segments:
    """Return every event as it is, by start."""
    order = np.argsort(start, kind="stable")
    start, duration, item = (
        np.asarray(column)[order].astype(np.int64) for column in (start, duration, item)
    )
    return Segments(start, duration, item, duration, np.ones(len(start), np.int64))


def reduced(start: Array, duration: Array, item: Array, max_segments: int) -> Segments:
    """Return the events in at most `max_segments` segments: single ones where these are few enough.

    `start` and `duration` are ns (int64), `item` codes from 0 on. The width of bins is a power of
    two.
    """
    if len(start) <= max_segments:
        return single(start, duration, item)
    start, duration = np.asarray(start, np.int64), np.asarray(duration, np.int64)
    item = np.asarray(item, np.int64)
    origin, items = int(start.min()), int(item.max()) + 1
    span = int((start + duration).max()) - origin + 1
    width = _power_of_two(span * items / (max_segments * _CELLS))
    count = np.zeros(((span - 1) // width + 1, items), np.int64)
    busy: Array = np.zeros(count.shape)
    while True:
        _count(start, origin, duration, item, width, count, busy)
        longer = np.flatnonzero(duration >= width)
        start, duration, item = start[longer], duration[longer], item[longer]
        at = np.flatnonzero((count > 0) | (busy > 0))
        segments = len(at) + len(longer)
        if segments <= max_segments or width >= span:
            break
        wider = _power_of_two(segments / max_segments)
        count, busy = (_coarser(cells, wider) for cells in (count, busy))
        width *= wider
    columns: Sequence[tuple[Array, Array]] = (
        (at // items * width + origin, start),
        (np.full(len(at), width), duration),
        (at % items, item),
        (busy.ravel()[at], duration),
        (count.ravel()[at], np.ones(len(longer))),
    )
    joined = [np.concatenate(pair).astype(np.int64) for pair in columns]
    order = np.argsort(joined[0], kind="stable")
    first, lasts, code, busy, count = (column[order] for column in joined)
    return Segments(first, lasts, code, busy, count, width, origin)


def _coarser(cells: Array, factor: int) -> Array:
    """Add up `factor` bins each, in cells of bins x items."""
    bins, items = -(-len(cells) // factor), cells.shape[1]
    padded = np.zeros((bins * factor, items), cells.dtype)
    padded[: len(cells)] = cells
    summed: Array = padded.reshape(bins, factor, items).sum(axis=1)
    return summed


def _power_of_two(value: float) -> int:
    """Return the smallest power of two that is not below `value`, and at least 2."""
    return 1 << max(int(np.ceil(np.log2(max(value, 1.0)))), 1)


def _count(
    begin: Array,
    origin: int,
    duration: Array,
    item: Array,
    width: int,
    count: Array,
    busy: Array,
) -> None:
    """Add the events shorter than `width` to cells of bins x items: how many, and their ns."""
    items = count.shape[1]
    count, busy = count.reshape(-1), busy.reshape(-1)
    for at in range(0, len(begin), _AT_ONCE):
        chunk = slice(at, at + _AT_ONCE)
        is_short = duration[chunk] < width
        short = slice(None) if is_short.all() else np.flatnonzero(is_short)
        start, lasts = begin[chunk][short] - origin, duration[chunk][short]
        bin_ = start >> (width.bit_length() - 1)
        rest = np.maximum(start + lasts - (bin_ + 1) * width, 0)
        cell = bin_ * items + item[chunk][short]
        # There are more cells than events: a bincount would write all of them each time.
        np.add.at(count, cell, 1)
        np.add.at(busy, cell, (lasts - rest).astype(float))
        over = np.flatnonzero(rest)
        np.add.at(busy, cell[over] + items, rest[over].astype(float))


def coverage(segments: Segments, item_kind: Array, edges: Array) -> Array:
    """Return the busy time (ns) of each kind between neighbours of `edges`: (kinds, edges - 1).

    `item_kind` is the kind of each item, `edges` times in rising order. The time of a segment is
    spread evenly over its length.
    """
    kinds = int(item_kind.max(initial=0)) + 1
    found = np.zeros((kinds, len(edges) - 1))
    ends = segments.start + segments.duration
    for kind in range(kinds):
        is_of_kind = item_kind[segments.item] == kind
        begin, end = segments.start[is_of_kind].astype(float), ends[is_of_kind].astype(float)
        length = np.maximum(end - begin, 1)
        found[kind] = np.diff(_until(edges, begin, end, segments.busy[is_of_kind] / length))
    return found


def _until(edges: Array, begin: Array, end: Array, rate: Array) -> Array:
    """Return the busy time before each edge: rate x the part of each segment before it, summed."""
    done = np.zeros(len(edges))
    for times, sign in ((begin, 1.0), (end, -1.0)):
        order = np.argsort(times, kind="stable")
        sums = np.concatenate([[0.0], np.cumsum(rate[order])])
        moments = np.concatenate([[0.0], np.cumsum(rate[order] * times[order])])
        at = np.searchsorted(times[order], edges, "right")
        done += sign * (sums[at] * edges - moments[at])
    return done
