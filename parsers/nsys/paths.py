"""Gives each API call the path of NVTX ranges around it, and the stage of the program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsight_prof.parsers.nsys.codes import Codebook
from nsight_prof.parsers.nsys.database import Array
from nsight_prof.parsers.nsys.nvtx import Ranges
from nsight_prof.parsers.patterns import matching

Stages = Sequence[str] | Mapping[str, str]  # patterns of range names, or stage -> pattern
LONGEST_LABEL = 100
"""Characters of a label; DLProf names a range by a record of 600 and more."""
_RECORD = re.compile(r"""['"](Module|mod|op)['"]:\s*['"]([^'"]+)['"]""")
_NUMBER = re.compile(r"(\d+)")
_REPEATS = 5  # values of a number from which on it counts repeats: a GEMM has fp8, 16, 32 and 64
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


def name_stages(names: Sequence[tuple[str, str]], stages: Stages) -> list[str | None]:
    """Return the stage that a range of each name is, None for no stage.

    A pattern must fit the bare name or `domain:name` as a whole. A stage has the name that the
    mapping gives its pattern, of the first that fits; else the label of the range, shortened.
    Without patterns, each range is a stage.
    """
    labels = [label(name) for name in names]
    if not stages:
        return [shorten(text) for text in labels]
    patterns = [(stage, re.compile(pattern)) for stage, pattern in named_patterns(stages)]
    with matching(f"stages: {', '.join(repr(p.pattern) for _, p in patterns)}"):
        return [
            next(
                (
                    stage or shorten(text)
                    for stage, pattern in patterns
                    if pattern.fullmatch(bare) or pattern.fullmatch(text)
                ),
                None,
            )
            for (_, bare), text in zip(names, labels, strict=True)
        ]


def named_patterns(stages: Stages) -> list[tuple[str | None, str]]:
    """Return each pattern with the name of its stage, None where ranges name it."""
    if isinstance(stages, Mapping):
        return list(stages.items())
    return [(None, pattern) for pattern in stages]


def label(name: tuple[str, str]) -> str:
    """`domain:name`, as nsys stats writes it; the bare name in the default domain."""
    domain, text = name
    return f"{domain}:{text}" if domain else text


def shorten(text: str) -> str:
    """A label that a person can read: of a record of DLProf or PyProf the operation, else cut."""
    if len(text) <= LONGEST_LABEL:
        return text
    if "{" in text[:LONGEST_LABEL]:
        facts = dict(reversed(_RECORD.findall(text)))
        name = ".".join(facts[key] for key in ("Module", "mod", "op") if key in facts)
        text = name or text
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"


def fold_repeats(names: Sequence[str]) -> list[str]:
    """Names with * for each number by which repeats of one thing differ: `step *`, but `fp16`."""
    parts = [_NUMBER.split(name) for name in names]  # a text, a number, …, a text
    values: dict[tuple[str, ...], list[set[str]]] = {}
    for part in parts:
        known = values.setdefault(tuple(part[::2]), [set() for _ in part[1::2]])
        for numbers, number in zip(known, part[1::2], strict=True):
            numbers.add(number)
    for part in parts:
        known = values[tuple(part[::2])]
        part[1::2] = [
            "*" if len(numbers) >= _REPEATS else number
            for numbers, number in zip(known, part[1::2], strict=True)
        ]
    return ["".join(part) for part in parts]
