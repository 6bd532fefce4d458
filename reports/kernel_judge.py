"""Judges profiled kernels: what explains the distance to the roof, and what could go at most."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reports.causes import Abstained, Cause, Context, explain
from reports.cells import Row, number, text
from reports.evidence import threshold
from reports.kernel_needs import needs
from reports.load import Run
from reports.profiled import profiled, sm_count
from reports.roofline import ceilings
from reports.rules import DEFECT

WORTH = 0.05
"""Part of a kernel's time from which on a defect explains a kernel that a roof holds up."""
SHORTEST_NS = 5000.0
"""A kernel that does next to nothing takes 2 us, and up to 5 under load (H200): no kernel gets
shorter. Where the shortest launch of a trace is longer, it tells nothing of that."""


@dataclass(frozen=True)
class Judged:
    """One profiled kernel with its causes and the part of its time that can go at most.

    `why` is the cause that explains it; None where nothing does but its roof.
    """

    row: Row
    causes: tuple[Cause, ...]
    why: Cause | None
    gain: float
    abstained: tuple[Abstained, ...] = ()

    @property
    def bound(self) -> str:
        """The resource that limits the kernel, or latency."""
        return text(self.row["bound_by"])


def context_of(run: Run) -> Context:
    """Return what the rules need to know of a run beside the counters of a kernel."""
    return Context(sm_count(run), ceilings(run.roofs), needs(run))


def judge(run: Run) -> list[Judged]:
    """Return the profiled kernels whose bound is known, most GPU time first."""
    context = context_of(run)
    shortest = number(run.kernels["min_ns"].min())
    floor = shortest if shortest < SHORTEST_NS else math.nan
    return [_judged(row, context, floor) for row in profiled(run) if text(row["bound_by"])]


def _judged(row: Row, context: Context, floor_ns: float) -> Judged:
    found, abstained = explain(row, context)
    why = explanation(row, found)
    return Judged(row, tuple(found), why, _gain(row, why, floor_ns), tuple(abstained))


def explanation(row: Row, found: list[Cause]) -> Cause | None:
    """Return the cause that explains what a kernel misses; None where its roof does.

    A kernel that waits has the first cause that was found. One at a roof has a defect that would
    take work off that roof: only then is there more to gain than a tenth.
    """
    if text(row["bound_by"]) == "latency":
        return found[0] if found else None
    least = max(WORTH, 1 - threshold("near_roof")) if is_near(row) else WORTH
    worth = (c for c in found if c.rank == DEFECT and (c.gain >= least))
    return next(worth, None)


def is_near(row: Row) -> bool:
    """Tell whether a kernel is so near the roof of its resource that no better kernel helps."""
    bound = text(row["bound_by"])
    if bound in ("issue", "latency"):
        return False
    limit = "near_dram_roof" if bound == "dram" else "near_roof"
    return number(row["roof_share"]) >= threshold(limit)


def _gain(row: Row, why: Cause | None, floor_ns: float) -> float:
    """Return the part of a kernel's time that can go at most.

    Never beyond the roof: with its bytes and FLOPs the kernel needs at least `roof_share` of its
    time; with fewer of them, what the cause leaves (see `causes.gain`). No kernel that waits gets
    shorter than the shortest launch of the trace.
    """
    room = 1 - number(row["roof_share"])
    if why is not None and not math.isnan(why.gain):
        room = why.gain
    if row["bound_by"] == "latency" and floor_ns > 0 and number(row["mean_ns"]) > 0:
        room = min(room, 1 - floor_ns / number(row["mean_ns"]))
    return max(0.0, room)
