"""Gives calls of threads without NVTX ranges the stage that is open on their program's one thread.

NVTX ranges belong to a thread, and torch runs the backward pass on a thread of its own: without
this, the kernels of `with nvtx.annotate("backward"): loss.backward()` are in no stage (seen with
torch 2.11 and nsys 2025.3.1). Ranges of NCCL are no ranges of the program: they stand around the
calls of DistributedDataParallel on that thread, too.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.nsys.rows.calls import Calls
from nsight_prof.parsers.nsys.rows.ranges import Ranges
from nsight_prof.parsers.nsys.sqlite.codes import STEP
from nsight_prof.parsers.nsys.sqlite.database import Array

_PROCESS = ~0xFFFFFF  # a globalTid without its thread
LIBRARY = "NCCL"
"""Domain of ranges that a library puts around its own calls."""


@dataclass
class Heir:
    """A thread without ranges of the program.

    `calls` is where its calls stand in the calls' order, `start` are their starts, and `source` is
    where those of the one thread of its process that has stages stand.
    """

    calls: slice
    start: Array
    source: slice


def find_heirs(calls: Calls, ranges: Ranges, is_stage: Array) -> list[Heir]:
    """Find the threads that can inherit stages; `is_stage` says it for each name of the ranges.

    Only where exactly one thread of the process has stages: of two, none is the right one.
    """
    of_program = is_stage | np.array([domain != LIBRARY for domain, _ in ranges.names], bool)
    process_of = np.empty(len(calls.ids), np.int64)
    process_of[calls.by_id] = calls.ids & _PROCESS
    bare: list[tuple[int, int, slice]] = []
    staged: dict[int, list[slice]] = {}
    for thread, process in enumerate(process_of.tolist()):
        base = thread * calls.span
        low, high = (int(at) for at in np.searchsorted(calls.axis, [base, base + calls.span]))
        here = slice(low, min(high, len(calls.order)))
        inside = ranges.order[_position(ranges, here.start) : _position(ranges, here.stop)]
        if not _any(of_program, ranges, inside):
            bare.append((process, base, here))
        elif _any(is_stage, ranges, inside):
            staged.setdefault(process, []).append(here)
    return [
        Heir(here, calls.axis[here] - (base - calls.low), staged[process][0])
        for process, base, here in bare
        if len(staged.get(process, ())) == 1
    ]


def _any(names: Array, ranges: Ranges, inside: Array) -> bool:
    """Whether the name of any of the ranges `inside` is one of `names`."""
    chunks = (inside[at : at + STEP] for at in range(0, len(inside), STEP))
    return any(names[ranges.name[chunk]].any() for chunk in chunks)


def _position(ranges: Ranges, call: int) -> int:
    """Place in `ranges.order` of the first range whose calls begin at `call` or later.

    By hand: numpy's searchsorted makes a copy of the order, twice as long as the order itself.
    """
    places = range(len(ranges.order))
    return bisect_left(places, call, key=lambda index: ranges.first[ranges.order[index]])


def inherit_stages(heirs: list[Heir], ranges: Ranges, instance: Array) -> int:
    """Write the stage of the heirs' calls into `instance`; return how many calls got one."""
    inherited = 0
    for heir in heirs:
        stages = np.unique(instance[heir.source])
        stages = stages[stages >= 0]
        stages = stages[np.argsort(ranges.start[stages], kind="stable")]
        at = np.searchsorted(ranges.start[stages], heir.start, "right") - 1
        inside = (at >= 0) & (heir.start < ranges.end[stages][at])
        instance[heir.calls][inside] = stages[at[inside]]
        inherited += int(np.count_nonzero(inside))
    return inherited
