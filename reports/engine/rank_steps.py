"""The steps of a job: which rank needed longest for each, and a heat map of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsight_prof.reports.page.charts import HeatFigure, HeatRow

MILLI = 1e-6
TYPICAL, LONGEST = 90, 3.0
"""Times are drawn up to LONGEST times this percentile of them."""
MOST_CELLS, MOST_COLUMNS, MOST_ROWS = 4_000, 200, 64
"""Cells of the picture; the table has all steps of all ranks."""


@dataclass(frozen=True)
class Slowest:
    """In how many `steps` a GPU needed longest itself, of all GPUs."""

    rank: int
    device: int
    steps: int


@dataclass(frozen=True)
class StepsView:
    """The steps of a job: instances of `stage`, which all GPUs have equally often."""

    stage: str
    count: int
    slowest: tuple[Slowest, ...]
    charts: tuple[HeatFigure, ...]

    def slowest_of(self, rank: int, device: int) -> int:
        """Return in how many steps this GPU needed longest."""
        return sum(s.steps for s in self.slowest if (s.rank, s.device) == (rank, device))


def steps_view(steps: pd.DataFrame) -> StepsView | None:
    """Return the steps of a job from table `rank_steps`; None where own times are not known."""
    known = steps[steps["own_ns"].notna()]
    if known["rank"].nunique() < 2:
        return None
    stage, frame = str(known["stage"].iloc[0]), known.assign(own_ns=known["own_ns"].astype(float))
    gpus = [(int(r), int(d)) for r, d in known[["rank", "device"]].drop_duplicates().to_numpy()]
    # Columns are numbers of GPUs in the order of `gpus`.
    codes = frame.groupby(["rank", "device"], sort=False).ngroup()
    own_times = frame.assign(gpu=codes).pivot_table(index="step", columns="gpu", values="own_ns")
    counts = Counter(own_times.idxmax(axis=1).tolist())
    slowest = tuple(Slowest(*gpus[code], n) for code, n in counts.most_common())
    longer = own_times.sub(own_times.min(axis=1), axis=0)
    charts = (
        _chart(
            own_times,
            gpus,
            stage,
            "rank-steps",
            "What each rank itself needs for each step",
            "Own time (ms)",
        ),
        _chart(
            longer,
            gpus,
            stage,
            "rank-steps-longer",
            "How much longer than the fastest rank each one needs itself",
            "Longer by (ms)",
        ),
    )
    return StepsView(stage, len(own_times), slowest, charts)


def _chart(
    times: pd.DataFrame,
    gpus: Sequence[tuple[int, int]],
    stage: str,
    name: str,
    title: str,
    value_label: str,
) -> HeatFigure:
    """Draw times (ns) by step and number of the GPU."""
    gpus = gpus[:MOST_ROWS]
    # A first step that compiles, 50 times as long as the others, leaves these white.
    largest = LONGEST * float(np.nanpercentile(times.to_numpy(), TYPICAL))
    cut = ""
    if 0 < largest < float(np.nanmax(times.to_numpy())):
        times = times.clip(upper=largest)
        cut = f" What is over {largest * MILLI:.3g} ms is drawn as that."
    columns = max(1, min(MOST_COLUMNS, MOST_CELLS // len(gpus), len(times)))
    chosen = np.unique(np.linspace(0, len(times) - 1, columns).round().astype(int))
    several = len({rank for rank, _ in gpus}) < len(gpus)
    some = f" {len(chosen)} of {len(times)} steps." if len(chosen) < len(times) else ""
    return HeatFigure(
        name,
        title,
        "Heat map: ranks by steps, the darker the longer the rank itself needed",
        f"{stage}, number",
        value_label,
        tuple(int(times.index[at]) for at in chosen),
        tuple(
            HeatRow(
                f"rank {rank}, GPU {device}" if several else f"rank {rank}",
                tuple((times[code].to_numpy()[chosen] * MILLI).tolist()),
            )
            for code, (rank, device) in enumerate(gpus)
        ),
        "Time without waiting for other ranks and without transfer: where a row is darker, the "
        f"others wait for it.{some}{cut}",
    )
