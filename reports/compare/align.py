"""Pairs the launches of two runs of a stage, in order: the k-th of A with the k-th of B.

A launch is a position in its side's sequence (device by device, in order of start). What stays
without a partner comes out as stretches between pairs: there kernels were fused, split, added or
left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

Pair = tuple[int, int]
"""Position in A and position in B."""
ROUNDS = 3
"""A stretch between pairs may have equally often what the whole has not: it is looked at again."""


@dataclass(frozen=True)
class Stretch:
    """Launches between two neighbouring pairs that have no partner, in order."""

    a: tuple[int, ...]
    b: tuple[int, ...]


@dataclass(frozen=True)
class Alignment:
    """Pairs in ascending order, and what lies between them."""

    pairs: tuple[Pair, ...]
    stretches: tuple[Stretch, ...]


def align(levels: Sequence[tuple[Sequence[Hashable], Sequence[Hashable]]]) -> Alignment:
    """Pair two sequences by keys, the most exact level first.

    Each level gives the keys of A and of B; None pairs with nothing. A key pairs the k-th with the
    k-th occurrence within a stretch where both sides have it equally often; of pairs that
    contradict the order, the longest ascending chain stays.
    """
    stretches = [Stretch(tuple(range(len(levels[0][0]))), tuple(range(len(levels[0][1]))))]
    pairs: list[Pair] = []
    for keys_a, keys_b in levels:
        for _ in range(ROUNDS):
            found: list[Pair] = []
            rest: list[Stretch] = []
            for stretch in stretches:
                here = _pairs_of(stretch, keys_a, keys_b)
                found += here
                rest += _between(stretch, here)
            pairs += found
            stretches = rest
            if not found:
                break
    return Alignment(tuple(sorted(pairs)), tuple(s for s in stretches if s.a or s.b))


def _pairs_of(
    stretch: Stretch, keys_a: Sequence[Hashable], keys_b: Sequence[Hashable]
) -> list[Pair]:
    places_a, places_b = _places(stretch.a, keys_a), _places(stretch.b, keys_b)
    pairs = [
        pair
        for key, where in places_a.items()
        if len(where) == len(places_b.get(key, ()))
        for pair in zip(where, places_b[key], strict=True)
    ]
    return ascending(sorted(pairs))


def _places(positions: Sequence[int], keys: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    found: dict[Hashable, list[int]] = defaultdict(list)
    for position in positions:
        if keys[position] is not None:
            found[keys[position]].append(position)
    return found


def ascending(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the longest chain of pairs, sorted by A, whose positions in B ascend (patience)."""
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for index, (_, b) in enumerate(pairs):
        place = bisect_left(ends, b)
        before.append(last[place - 1] if place else -1)
        if place == len(ends):
            ends.append(b)
            last.append(index)
        else:
            ends[place], last[place] = b, index
    chain: list[Pair] = []
    index = last[-1] if last else -1
    while index >= 0:
        chain.append(pairs[index])
        index = before[index]
    return chain[::-1]


def _between(stretch: Stretch, pairs: Sequence[Pair]) -> list[Stretch]:
    """Cut a stretch at its pairs."""
    if not pairs:
        return [stretch]
    found = []
    at_a = at_b = 0
    ends = [*pairs, (None, None)]
    for a, b in ends:
        stop_a = len(stretch.a) if a is None else bisect_left(stretch.a, a)
        stop_b = len(stretch.b) if b is None else bisect_left(stretch.b, b)
        piece = Stretch(stretch.a[at_a:stop_a], stretch.b[at_b:stop_b])
        if piece.a or piece.b:
            found.append(piece)
        at_a, at_b = stop_a + 1, stop_b + 1
    return found
