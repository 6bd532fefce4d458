"""Rows of a comparison: kernels of A and what stands for them in B, each with its launches."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence as Ordered
from dataclasses import dataclass

import numpy as np

from nsight_prof.reports.compare.sides import Durations, Kernel, Sequence


@dataclass(frozen=True)
class Part:
    """Launches of one kernel in a row: how many, and their time in ns.

    `spread`: sample standard deviation of a launch in ns, NaN for one. `durations` are in launch
    order, None for a kernel summary. `portion`: of all launches of the kernel in the stage, 0 to 1.
    """

    kernel: Kernel
    calls: int
    total: float
    spread: float
    durations: Durations | None
    portion: float


@dataclass(frozen=True)
class Row:
    """Kernels of A and what stands for them in B, in one stage; parts with most time first.

    `match` is identical, shape, replaced, fused, split, regrouped, new or gone. `by_place`: no
    operator's name ties some of them, only that they ran at the same place of the program.
    """

    stage: str
    match: str
    a: tuple[Part, ...]
    b: tuple[Part, ...]
    by_place: bool

    @property
    def total_a(self) -> float:
        """Time of A in ns."""
        return sum(part.total for part in self.a)

    @property
    def total_b(self) -> float:
        """Time of B in ns."""
        return sum(part.total for part in self.b)

    @property
    def calls(self) -> tuple[int, int]:
        """Launches of A and of B."""
        return sum(part.calls for part in self.a), sum(part.calls for part in self.b)


def parts(
    positions: Ordered[int], sequence: Sequence, kernels: Ordered[Kernel]
) -> tuple[Part, ...]:
    """Return the launches at `positions` kernel by kernel."""
    where: dict[str, list[int]] = defaultdict(list)
    for position in sorted(positions):
        where[sequence.ids[position]].append(position)
    count: dict[str, int] = defaultdict(int)
    for key in sequence.ids:
        if key in where:
            count[key] += 1
    found = [
        _part(kernels[places[0]], places, len(places) / count[key], sequence)
        for key, places in where.items()
    ]
    return tuple(sorted(found, key=lambda part: -part.total))


def _part(kernel: Kernel, places: list[int], portion: float, sequence: Sequence) -> Part:
    if sequence.summed:
        calls, total, spread = sequence.summed[places[0]]
        return Part(kernel, calls, total, spread, None, portion)
    durations = sequence.durations[places]
    spread = float(durations.std(ddof=1)) if len(durations) > 1 else math.nan
    return Part(kernel, len(places), float(np.sum(durations)), spread, durations, portion)


def match_of(a: tuple[Part, ...], b: tuple[Part, ...], looped: bool) -> str:
    """Return what became of the kernels of a row.

    `looped`: the runs loop differently often, so numbers of launches tell nothing.
    """
    if not a or not b:
        return "gone" if a else "new"
    ours, theirs = a[0].kernel, b[0].kernel
    if len(a) == len(b) == 1 and ours.kernel_id == theirs.kernel_id:
        return "identical"
    if {p.kernel.short_name for p in a} == {p.kernel.short_name for p in b}:
        return "shape"
    counts = [len(side) if looped else sum(p.calls for p in side) for side in (a, b)]
    if counts[0] == counts[1]:
        return "replaced" if len(a) == len(b) == 1 else "regrouped"
    if min(len(a), len(b)) > 1:
        return "regrouped"
    return "fused" if counts[0] > counts[1] else "split"
