"""Gives each API call the path of NVTX ranges around it, and the stage of the program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsight_prof.parsers.nsys.rows.ranges import Ranges
from nsight_prof.parsers.nsys.sqlite.codes import Codebook
from nsight_prof.parsers.nsys.sqlite.database import Array

DEEPEST = 1000
"""Levels of ranges that a path has; the memory of paths grows with the square of it."""
_CALLS = 1 << 16  # calls of a block: positions in it fit 16 bits, which numpy sorts by radix
_PAIRS = 1 << 22  # (call, open range) pairs held at a time


@dataclass
class Attribution:
    """NVTX path and stage of each call, in the order of the calls' thread and start.

    `path` is a code into `paths` (each the codes of its ranges' names, outermost first), 0 outside
    of all ranges. `instance` is the index of the range that is the call's stage, -1 for none.
    `deepest` is how many ranges are open at once; beyond DEEPEST they are not looked at.
    """

    path: Array
    instance: Array
    paths: list[tuple[int, ...]]
    deepest: int = 0


def attribute(ranges: Ranges, calls: int, is_stage: Array) -> Attribution:
    """Attribute `calls` calls to the ranges; `is_stage` says it for each name of the ranges.

    The outermost range whose name is a stage is the stage of the calls in it.
    """
    result = Attribution(np.zeros(calls, np.int32), np.full(calls, -1, np.int32), [()])
    book: Codebook[tuple[int, int]] = Codebook()
    book.code((0, -1))
    first = ranges.first[ranges.order]
    active = np.empty(0, np.int32)
    low, next_range = 0, 0
    while low < calls:
        high = min(low + _CALLS, calls)
        upto = int(np.searchsorted(first, high))
        active = np.concatenate([active, ranges.order[next_range:upto]])
        next_range = upto
        for block in _blocks(ranges, active, low, high):
            _walk(ranges, block, is_stage, result, book)
        active = active[ranges.last[active] > high]
        low = high
    for parent, name in book.keys[1:]:
        result.paths.append((*result.paths[parent], name))
    return result


@dataclass
class _Block:
    """Calls from `low` on; the ranges around call i are open_ranges[first[i] :][: depth[i]]."""

    low: int
    depth: Array
    first: Array
    open_ranges: Array


def _blocks(ranges: Ranges, active: Array, low: int, high: int) -> list[_Block]:
    """One block for these calls, or smaller ones where many ranges are open."""
    first = np.maximum(ranges.first[active], low)
    last = np.minimum(ranges.last[active], high)
    open_here = last > first
    active, first, last = active[open_here], first[open_here], last[open_here]
    length = last.astype(np.int64) - first
    pairs = int(length.sum())
    if pairs > _PAIRS and high - low > 1:
        middle = (low + high) // 2
        return _blocks(ranges, active, low, middle) + _blocks(ranges, active, middle, high)
    before = np.cumsum(length) - length
    call = (np.arange(pairs) - np.repeat(before - (first - low), length)).astype(np.uint16)
    order = np.argsort(call, kind="stable")  # ranges of a call stay in the order of nesting
    depth = np.bincount(call, minlength=high - low)
    return [_Block(low, depth, np.cumsum(depth) - depth, np.repeat(active, length)[order])]


def _walk(
    ranges: Ranges,
    block: _Block,
    is_stage: Array,
    result: Attribution,
    book: Codebook[tuple[int, int]],
) -> None:
    """Go down the nesting one level at a time, for all calls of the block at once."""
    size = len(block.depth)
    path = result.path[block.low : block.low + size]
    instance = result.instance[block.low : block.low + size]
    names = len(ranges.names)
    deepest = int(block.depth.max(initial=0))
    result.deepest = max(result.deepest, deepest)
    for level in range(min(deepest, DEEPEST)):
        calls = np.flatnonzero(block.depth > level)
        ranges_here = block.open_ranges[block.first[calls] + level]
        name = ranges.name[ranges_here]
        codes, steps = pd.factorize(path[calls].astype(np.int64) * names + name)
        keys = [divmod(step, names) for step in steps.tolist()]
        path[calls] = book.translate(codes, keys)
        begins = is_stage[name] & (instance[calls] < 0)
        instance[calls[begins]] = ranges_here[begins]
