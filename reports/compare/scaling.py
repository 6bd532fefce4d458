"""Holds what B took against what its work lets expect, where B did other work than A."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from nsight_prof.parsers.cells import known
from nsight_prof.reports.compare.models import Change, CompareView, KernelChange
from nsight_prof.reports.compare.noise import Ratio

TIMES = ("total_gpu_time", "steady_gpu_time", "gpu_time", "wall_time")
"""Times that grow with the work: more of one is no slowdown."""
NEUTRAL = {"faster": "less", "slower": "more"}


def per_work(view: CompareView) -> CompareView:
    """Return the comparison with kernels judged per unit of work; as it is where none is known.

    Rows come by the time that B takes beyond (or short of) that of A for as much work. `program`
    is that time per unit over the GPU time of A; a verdict is that of the time per unit. Totals and
    stages took more or less time, their times per unit were faster or slower.
    """
    if view.work is None:
        return view
    stages = tuple(replace(s, changes=_neutral(s.changes)) for s in view.stages)
    kernels = _kernels(view.kernels, view.work)
    return replace(view, totals=_neutral(view.totals), stages=stages, kernels=kernels)


def _neutral(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(
        replace(c, verdict=NEUTRAL.get(c.verdict, c.verdict)) if c.key in TIMES else c
        for c in changes
    )


def added(row: KernelChange, work: float) -> float:
    """Return the time in ns that B takes beyond that of A for as much work."""
    return (row.total.b or 0.0) - work * (row.total.a or 0.0)


def _kernels(rows: Iterable[KernelChange], work: float) -> tuple[KernelChange, ...]:
    rows = list(rows)
    whole = work * sum(row.total.a or 0.0 for row in rows)
    ranked = sorted(rows, key=lambda row: (row.one_off, -abs(added(row, work))))
    return tuple(
        replace(
            row,
            number=number,
            program=known(added(row, work) / whole) if whole > 0 else None,
            total=_judged(row.total, work),
        )
        for number, row in enumerate(ranked, 1)
    )


def _judged(total: Change, work: float) -> Change:
    """Return a time with the verdict of the time per unit; new and gone kernels stay so."""
    if total.ratio is None:
        return total
    low, high = (math.nan if end is None else end / work for end in (total.low, total.high))
    ratio = Ratio(total.ratio / work, low, high, total.basis, total.floor)
    return replace(total, verdict=ratio.verdict)
