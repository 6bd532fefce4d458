"""The steps of a job: which rank needed longest for each, and a heat map of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsight_prof.reports.page import Column, Name, Number, Ref, Table, Text, Verbatim
from nsight_prof.reports.page.charts import HeatFigure, HeatRow

MILLI = 1e-6
TYPICAL, LONGEST = 90, 3.0
"""Times are drawn up to LONGEST times this percentile of them."""
MOST_STAGES = 20
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
    wall_ns: float
    """Of a step, the mean over steps and GPUs."""
    slowest: tuple[Slowest, ...]
    charts: tuple[HeatFigure, ...]

    def slowest_of(self, rank: int, device: int) -> int:
        """Return in how many steps this GPU needed longest."""
        return sum(s.steps for s in self.slowest if (s.rank, s.device) == (rank, device))


@dataclass(frozen=True)
class StageBalance:
    """What a stage takes on the ranks that have it, without collectives: mean and longest (ns)."""

    stage: str
    ranks: int
    mean_ns: float
    max_ns: float
    max_rank: int

    @property
    def imbalance(self) -> float:
        """The part of the longest time by which the mean is shorter."""
        return 1 - self.mean_ns / self.max_ns if self.max_ns else 0.0

    @property
    def gain_ns(self) -> float:
        """What equal work on all ranks saves at most."""
        return self.max_ns - self.mean_ns


def stage_balances(stages: pd.DataFrame) -> tuple[StageBalance, ...]:
    """Return the stages of table `rank_stages` that several ranks have, the largest gain first."""
    found = []
    for stage, rows in stages.groupby("stage", sort=False):
        times = rows["kernel_ns"].astype(float)
        if len(times) > 1 and times.max() > 0:
            rank = int(rows["rank"].iloc[int(times.to_numpy().argmax())])
            mean, longest = float(times.mean()), float(times.max())
            found.append(StageBalance(str(stage), len(times), mean, longest, rank))
    return tuple(sorted(found, key=lambda balance: -balance.gain_ns))


def balance_table(balances: Sequence[StageBalance]) -> Table[StageBalance]:
    """Return how unequal the work of the ranks is, stage by stage."""

    def time(heading: Text, column: str) -> Column[StageBalance]:
        return Column(heading, lambda row: Number(getattr(row, column), "ns", _refs(row), digits=3))

    return Table(
        "rank-stages",
        Text("Load imbalance by stage"),
        [
            Column(Text("Stage"), lambda row: Name(row.stage)),
            Column(Text("Ranks"), lambda row: row.ranks),
            time(Text("Mean"), "mean_ns"),
            time(Text("Longest"), "max_ns"),
            Column(Text("On rank"), lambda row: row.max_rank),
            Column(
                Text("Imbalance"),
                lambda row: Number(row.imbalance, "fraction", _refs(row), digits=2),
            ),
            time(Text("Balance saves at most"), "gain_ns"),
        ],
        balances[:MOST_STAGES],
        lead=Text(
            "GPU time of the kernels of a stage other than collectives. Imbalance: by how much the "
            "mean is shorter than the longest. Of stages inside of others the savings do not add "
            "up."
        ),
        refs=_refs,
    )


def _refs(row: StageBalance) -> tuple[Ref, ...]:
    return (Ref("rank_stages", f"{row.max_rank} {row.stage}", "kernel_ns"),)


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
    wall_ns = float(known["wall_ns"].astype(float).mean())
    return StepsView(stage, len(own_times), wall_ns, slowest, charts)


def time_chart(bins: pd.DataFrame) -> HeatFigure | None:
    """Draw over time how much of it each GPU computes, from table `rank_bins`; None for one GPU."""
    gpus = sorted({(int(r), int(d)) for r, d in bins[["rank", "device"]].to_numpy()})
    if len(gpus) < 2 or bins["wait_ns"].isna().any():
        return None
    count = int(bins["bin"].max()) + 1
    columns = max(1, min(MOST_COLUMNS, MOST_CELLS // min(len(gpus), MOST_ROWS)))
    column = bins["bin"] * columns // count
    sums = bins.groupby([column, "rank", "device"])[["compute_ns", "wall_ns"]].sum()
    share = (100 * sums["compute_ns"] / sums["wall_ns"]).unstack(level=0)
    begins = (bins.groupby(column)["start_ns"].min() - bins["start_ns"].min()) * MILLI
    return HeatFigure(
        "ranks-over-time",
        "How much each GPU computes over time",
        "Heat map: ranks by time, the darker the more of it the GPU computes",
        "Time (ms)",
        "Computing (%)",
        tuple(begins.round().astype(int)),
        tuple(
            HeatRow(_label(gpu, gpus), tuple(values.tolist()))
            for gpu, values in zip(gpus[:MOST_ROWS], share.to_numpy(float), strict=False)
        ),
        subtitle="Kernels other than collectives; by the clock of the first rank.",
    )


def _label(gpu: tuple[int, int], gpus: Sequence[tuple[int, int]]) -> Text:
    rank, device = gpu
    if len({rank for rank, _ in gpus}) < len(gpus):
        return Text("rank {rank}, GPU {gpu}", rank=rank, gpu=device)
    return Text("rank {rank}", rank=rank)


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
    cut: Text | str = ""
    if 0 < largest < float(np.nanmax(times.to_numpy())):
        times = times.clip(upper=largest)
        over = Number(largest, "ns").at_digits(3)
        cut = Text(" What is over {time} is drawn as that.", time=over)
    columns = max(1, min(MOST_COLUMNS, MOST_CELLS // len(gpus), len(times)))
    chosen = np.unique(np.linspace(0, len(times) - 1, columns).round().astype(int))
    some: Text | str = ""
    if len(chosen) < len(times):
        some = Text(" {n} of {total} steps.", n=len(chosen), total=len(times))
    return HeatFigure(
        name,
        title,
        "Heat map: ranks by steps, the darker the longer the rank itself needed",
        Text("{stage}, number", stage=Verbatim(stage)),
        value_label,
        tuple(int(times.index[at]) for at in chosen),
        tuple(
            HeatRow(
                _label(gpu, gpus),
                tuple((times[code].to_numpy()[chosen] * MILLI).tolist()),
            )
            for code, gpu in enumerate(gpus)
        ),
        subtitle=Text(
            "Time without waiting for other ranks and without transfer: where a row is darker, the "
            "others wait for it.{some}{cut}",
            some=some,
            cut=cut,
        ),
    )
