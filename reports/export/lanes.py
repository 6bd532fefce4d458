"""Shares events of one track out over lanes, so that a trace viewer can draw each of them.

The Trace Event Format asks the events of one thread to nest; a viewer drops or moves others.
Kernels of one stream may overlap (CUDA graphs, programmatic dependent launch), and clocks are not
exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_Place = Callable[[list[list[int]], int, int], int]


def disjoint(start: Array, end: Array, track: Array) -> Array:
    """Return the lane of each event, 0 first, so that no two on a lane and track overlap."""
    return _lanes(start, end, track, _after_all)


def nested(start: Array, end: Array, track: Array) -> Array:
    """Return the lane of each event, 0 first, so that two on a lane and track nest or are apart."""
    return _lanes(start, end, track, _inside_or_after)


def _lanes(start: Array, end: Array, track: Array, position: _Place) -> Array:
    """Place groups of events that touch each other one by one; the others all fit lane 0."""
    lanes = np.zeros(len(start), np.int32)
    if not len(start):
        return lanes
    order = np.lexsort((-end, start, track))
    start, end, track = start[order], end[order], track[order]
    begins = _begins(start, end, track)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(begins))
    for low, high in zip(first.tolist(), last.tolist(), strict=True):
        if high - low == 1:
            continue
        open_ends: list[list[int]] = []
        events = zip(start[low:high].tolist(), end[low:high].tolist(), strict=True)
        lanes[order[low:high]] = [position(open_ends, *event) for event in events]
    return lanes


def _begins(start: Array, end: Array, track: Array) -> Array:
    """Where all earlier events of the track have ended; events are by track and start."""
    changes = np.flatnonzero(np.diff(track, prepend=track[0] - 1))
    begins = np.zeros(len(start), bool)
    for low, high in zip(changes, [*changes[1:], len(start)], strict=True):
        reached = np.maximum.accumulate(end[low:high])
        begins[low + 1 : high] = start[low + 1 : high] >= reached[:-1]
    begins[changes] = True
    return begins


def _after_all(lanes: list[list[int]], start: int, end: int) -> int:
    for number, ends in enumerate(lanes):
        if ends[0] <= start:
            ends[0] = end
            return number
    lanes.append([end])
    return len(lanes) - 1


def _inside_or_after(lanes: list[list[int]], start: int, end: int) -> int:
    for number, ends in enumerate(lanes):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or end <= ends[-1]:
            ends.append(end)
            return number
    lanes.append([end])
    return len(lanes) - 1
