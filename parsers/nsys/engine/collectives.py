"""Collectives of an engine's steps: which kernels they are, and how long ranks wait in them.

A collective ends when all ranks have come. Of the ranks, the one that came last has the shortest
kernel: what the others need longer is time in which they waited. This compares durations only, so
that clocks of different GPUs need not agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.nsys.engine.work import RankWork
from nsight_prof.parsers.nsys.sqlite.database import Array


@dataclass(frozen=True)
class Collectives:
    """Which operations of a rank are collectives of its steps, and its wait in them a step (ns).

    `wait_ns` is None where it is not known: there is one rank, or the collectives of the ranks'
    steps differ.
    """

    mask: Array
    wait_ns: list[int | None]


def waits(works: list[RankWork]) -> list[Collectives]:
    """Find the collectives of all ranks, and compare the ranks."""
    masks = [work.collective & (work.step >= 0) for work in works]
    durations = [_by_step(work, mask) for work, mask in zip(works, masks, strict=True)]
    shapes = [
        [(step.kind, len(step_waits)) for step, step_waits in zip(w.steps, d, strict=True)]
        for w, d in zip(works, durations, strict=True)
    ]
    comparable = len(works) > 1 and any(mask.any() for mask in masks)
    found = []
    for rank, work in enumerate(works):
        waited: list[int | None] = []
        for step in range(len(work.steps)):
            alike = comparable and all(
                step < len(shape) and shape[step] == shapes[rank][step] for shape in shapes
            )
            if not alike:
                waited.append(None)
                continue
            of_ranks = np.stack([durations[peer][step] for peer in range(len(works))])
            waited.append(int((of_ranks[rank] - of_ranks.min(axis=0)).sum()))
        found.append(Collectives(masks[rank], waited))
    return found


def _by_step(work: RankWork, mask: Array) -> list[Array]:
    """Durations of the collectives of each step, in the order of their start."""
    step, duration = work.step[mask], (work.end - work.start)[mask]
    order = np.argsort(step, kind="stable")
    cuts = np.searchsorted(step[order], np.arange(1, len(work.steps)))
    return np.split(duration[order], cuts) if len(work.steps) else []
