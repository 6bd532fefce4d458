"""The steps of a loop, told by the kernels that come again: those queued ahead, and the others.

A host that issues its work while the GPU still works for something earlier has queued the first
steps of a loop before the GPU comes to them. They run as they would from a CUDA graph, beside the
same steps of the same program that wait for the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nsight_prof.reports.page import Number, Ref

FEWEST = 6
"""Steps of a loop, at least."""
LARGEST_STEP_GAP = 0.1
"""Part of the steps whose number of launches may differ."""
KERNELS = 5
"""Launches of a step, at least: a kernel or two are no step."""
QUEUED_UP_TO_NS = 2000.0
"""Idle time per launch up to which a step was queued: 0.6 to 1.3 us in recorded runs of an H200."""
FEWEST_ALIKE = 2
"""Steps of a kind, at least: one may be where a loop begins or ends."""
DIFFERENT = 1.2
"""Ratio of the medians from which on two kinds of steps are told apart."""


@dataclass(frozen=True)
class Repeats:
    """Steps of `launches` kernels each; `period` is the median time from one to the next.

    `queued` steps were issued before the GPU came to them, the `others` were not.
    """

    launches: int
    queued: int
    others: int
    queued_period: Number
    period: Number

    @property
    def ratio(self) -> Number:
        """How many times as long a step takes that was not queued."""
        return self.period.times(self.queued_period)


def repeats(frame: pd.DataFrame, stage: str) -> Repeats | None:
    """Return the two kinds of steps of a stage; None where there is no loop, or one kind of step.

    `frame` is that of `timeline`.
    """
    found = periods(frame, stage)
    if found is None:
        return None
    period, is_queued, launches = found
    queued, others = int(is_queued.sum()), int((~is_queued).sum())
    if min(queued, others) < FEWEST_ALIKE:
        return None
    cells = (Ref("launches", "", "start_ns"), Ref("launches", "", "duration_ns"))
    queued_step, waiting_step = (
        Number(float(np.median(period[kind])), "ns", cells) for kind in (is_queued, ~is_queued)
    )
    both = Repeats(launches, queued, others, queued_step, waiting_step)
    return both if (both.ratio.value or 0.0) >= DIFFERENT else None


def periods(
    frame: pd.DataFrame, stage: str
) -> tuple[NDArray[np.int64], NDArray[np.bool_], int] | None:
    """Return the ns from each step of a stage to the next, whether it was queued, and its launches.

    None where there is no loop, or work on several GPUs or streams.
    """
    rows = frame[frame["stage"] == stage] if stage else frame
    at = _steps(rows) if rows["queue"].nunique() == 1 else None
    if at is None:
        return None
    start, end = (rows[name].to_numpy() for name in ("start_ns", "end_ns"))
    before = np.maximum.accumulate(end)[:-1]
    idle = np.concatenate([[0], np.maximum(start[1:] - before, 0)]).cumsum()
    launches = np.diff(at)
    is_queued = np.diff(idle[at]) <= QUEUED_UP_TO_NS * launches
    return np.diff(start[at]), is_queued, int(np.median(launches))


def _steps(rows: pd.DataFrame) -> NDArray[np.int64] | None:
    """Return the positions at which steps begin: those of the kernel that comes once in each.

    That is the kernel between whose launches most others lie, the same number nearly each time.
    """
    of_range = rows.groupby(["nvtx_path", "short_name"], sort=False, observed=True)
    codes = of_range.ngroup().to_numpy()
    best: tuple[float, NDArray[np.int64]] | None = None
    often = np.bincount(codes)
    for code in np.flatnonzero(often >= FEWEST):
        at = np.flatnonzero(codes == code)
        distances = np.diff(at)
        length = float(np.median(distances))
        regular = (distances == length).mean() >= 1 - LARGEST_STEP_GAP
        if regular and length >= KERNELS and (best is None or length > best[0]):
            best = length, at
    return None if best is None else best[1]
