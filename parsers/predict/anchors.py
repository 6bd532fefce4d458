"""Draws the costs of an operator through what it took at recorded sizes."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nsight_prof.parsers.predict.costs import Costs
from nsight_prof.parsers.predict.operators import Kind, Operator


@dataclass(frozen=True)
class Anchors:
    """What one call of an operator took at recorded sizes, in seconds.

    `sizes`: size -> work per size -> (operator, seconds), both in rising order. The size is m, and
    the bytes of what only moves them. `base` are the costs that they correct.
    """

    base: Costs
    sizes: Mapping[float, Mapping[float, tuple[Operator, float]]]

    @classmethod
    def of(cls, base: Costs, items: Sequence[tuple[Operator, float]]) -> Anchors:
        """Return the anchors; of equal sizes the median counts."""
        found: dict[tuple[float, float], list[tuple[Operator, float]]] = defaultdict(list)
        for item in items:
            found[coordinates(item[0])].append(item)
        sizes: dict[float, dict[float, tuple[Operator, float]]] = defaultdict(dict)
        for (size, work), same in sorted(found.items()):
            sizes[size][work] = (same[0][0], float(np.median([seconds for _, seconds in same])))
        return cls(base, sizes)

    def seconds(self, operator: Operator) -> float:
        """Return the seconds of one call."""
        size, work = coordinates(operator)
        if operator.kind is Kind.ROUTED:  # measured at all sizes: no lower tier has its experts
            known = [(at, math.log(found[1.0][1])) for at, found in self.sizes.items()]
            return math.exp(_between(size, known))
        first = next(iter(self.sizes.values()))
        if len(self.sizes) == len(first) == 1 and operator.kind not in (Kind.PRODUCT, Kind.PREFILL):
            return self._shifted(operator, *next(iter(first.values())))
        if operator.kind in (Kind.POINTWISE, Kind.COLLECTIVE):
            return _line(size, [(at, found[1.0][1]) for at, found in self.sizes.items()])
        factors = [_between(work, known) for known in self._factors]
        factor = _between(size, list(zip(self.sizes, factors, strict=True)))
        return self.base.of(operator).seconds * math.exp(factor)

    def left_out(self) -> list[float]:
        """Return measured over estimated seconds of each size between others, left out in turn."""
        found = []
        for at in list(self.sizes)[1:-1]:
            rest = Anchors(self.base, {k: v for k, v in self.sizes.items() if k != at})
            found += [known / rest.seconds(item) for item, known in self.sizes[at].values()]
        return found

    @cached_property
    def _factors(self) -> list[list[tuple[float, float]]]:
        """Logarithms of recorded over base costs, by work, of each size."""
        return [
            [(at, math.log(s / self.base.of(o).seconds)) for at, (o, s) in found.items()]
            for found in self.sizes.values()
        ]

    def _shifted(self, operator: Operator, known: Operator, seconds: float) -> float:
        if operator.kind is Kind.COLLECTIVE:
            more = seconds * (operator.bytes / known.bytes - 1)
        else:
            more = self.base.of(operator).seconds - self.base.of(known).seconds
        return max(seconds + more, seconds / 2)


def coordinates(operator: Operator) -> tuple[float, float]:
    """Return size and work per size of an operator, along which its costs are interpolated."""
    if operator.kind is Kind.PREFILL:
        return operator.m, operator.flops / operator.m
    if operator.kind is Kind.DECODE:
        return operator.m, operator.bytes / operator.m
    return (operator.m if operator.kind in (Kind.PRODUCT, Kind.ROUTED) else operator.bytes), 1.0


def _between(at: float, known: Sequence[tuple[float, float]]) -> float:
    """Return the value at `at`, between the known ones along the logarithm."""
    sizes, values = zip(*known, strict=True)
    return float(np.interp(math.log(at), np.log(sizes), values))


def _line(work: float, known: Sequence[tuple[float, float]]) -> float:
    """Return the seconds on the line through the next two known ones; it does not fall."""
    index = min(max(bisect.bisect_left(known, (work,)), 1), len(known) - 1)
    (first, low), (last, high) = known[index - 1], known[index]
    rate = max(0.0, (high - low) / (last - first))
    return max(low + rate * (work - first), min(low, high) / 2)
