"""Keeps work that a program does once (compiling, tuning, loading) apart from what it does again.

A stage that is entered many times launches about as many kernels each time. Where a few of its
instances launch far more, they do something that the others do not: torch.compile tunes its
kernels, a library picks an algorithm. These instances become a stage of their own, on both sides,
so that the usual ones can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.repeats import FEWEST_ALIKE, periods
from nsight_prof.reports.analysis.timeline import timeline
from nsight_prof.reports.compare import noise, threshold
from nsight_prof.reports.compare.changes import NEUTRAL, Change, OneOff, change
from nsight_prof.reports.compare.noise import Ratio
from nsight_prof.reports.compare.sides import ALL, Side
from nsight_prof.reports.page import Text

Indices = np.ndarray[Any, np.dtype[np.int64]]
Values = np.ndarray[Any, np.dtype[np.float64]]
NO_STEP = (math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Stage:
    """Launches of a stage in one run by instance.

    `rows`: labels of the launches in table `launches`; `of`: the instance of each, from 0;
    `starts`: first start of each instance in ns, by process one after the other.
    """

    rows: pd.Index
    of: Indices
    gpu_ns: Values
    starts: tuple[Values, ...]

    @property
    def instances(self) -> int:
        """How often a process entered the stage."""
        return int(self.of.max()) + 1

    def odd(self) -> set[int]:
        """Return the instances that launch far more kernels than the median one; few, or none."""
        calls = np.bincount(self.of)
        odd = np.flatnonzero(calls > threshold("one_off_launches") * np.median(calls))
        return set(odd.tolist()) if len(odd) <= threshold("one_off_part") * len(calls) else set()


@dataclass(frozen=True)
class Split:
    """Both sides with odd instances in stages of their own, called `names`; the time of a step."""

    a: Side
    b: Side
    one_off: tuple[OneOff, ...]
    names: frozenset[str]
    steps: tuple[Change, ...]


Stages = Mapping[str, Stage]


def instances(run: Run, rename: Mapping[str, str]) -> dict[str, Stage]:
    """Return the stages of a run whose instances the order of launches shows, by their new name.

    Launches of a stage between launches of other stages are one instance. A stage whose pieces are
    not as many as table `stages` counts, or fewer than a handful, is left out.
    """
    frame = run.launches
    if frame.empty:
        return {}
    keys = frame[["device", "pid", "start_ns"]].fillna(0).astype("float64")
    order = keys.sort_values(["device", "pid", "start_ns"], kind="stable").index
    lane = keys.loc[order].groupby(["device", "pid"], sort=False).ngroup().to_numpy()
    stage = frame.loc[order, "stage"].astype(object).fillna("").astype(str).to_numpy()
    new = np.ones(len(order), dtype=bool)
    new[1:] = (stage[1:] != stage[:-1]) | (lane[1:] != lane[:-1])
    piece = np.cumsum(new) - 1
    frame = pd.DataFrame(
        {
            "stage": [rename.get(name, name) for name in stage],
            "lane": lane,
            "piece": piece,
            "start": keys.loc[order, "start_ns"].to_numpy(),
            "gpu_ns": frame.loc[order, "duration_ns"].to_numpy(dtype=float),
        },
        index=order,
    )
    counts = _counted(run, rename)
    return {
        str(name): _stage(launches)
        for name, launches in frame.groupby("stage", sort=False)
        if name
        and launches["piece"].nunique() == counts.get(str(name))
        and launches.groupby("lane")["piece"].nunique().min() >= threshold("one_off_instances")
    }


def _counted(run: Run, rename: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in records(run.stages[run.stages["stage"] != ALL]):
        name = rename.get(text(row["stage"]), text(row["stage"]))
        found[name] = found.get(name, 0.0) + number(row["instances"])
    return found


def _stage(launches: pd.DataFrame) -> Stage:
    of = launches.groupby("lane")["piece"].transform(lambda p: pd.factorize(p)[0])
    starts = tuple(
        group.groupby("piece")["start"].min().to_numpy(dtype=float)
        for _, group in launches.groupby("lane")
    )
    gpu_ns = launches["gpu_ns"].to_numpy()
    return Stage(launches.index, of.to_numpy(dtype=np.int64), gpu_ns, starts)


def keep_apart(a: Side, b: Side, rename: Mapping[str, str]) -> Split:
    """Return both sides with odd instances as stages of their own, and what these are.

    Where all runs have as many instances, those that are odd in any run leave the stage in every
    run: the k-th of A and of B do the same work. Odd ones of no material time stay.
    """
    found = [[instances(run, rename) for run in side.runs] for side in (a, b)]
    everywhere = [
        name
        for name in dict.fromkeys(name for stages in found[0] for name in stages)
        if all(name in stages for side in found for stages in side)
    ]
    split = {
        name: _odd(stages[name] for side in found for stages in side)
        for name in everywhere
        if any(
            _is_material(run, stages[name])
            for side, of_runs in zip((a, b), found, strict=True)
            for run, stages in zip(side.runs, of_runs, strict=True)
        )
    }
    one_off = tuple(
        OneOff(label, name, *_amounts(stages[0][name]))
        for name in split
        for label, stages in zip("AB", found, strict=True)
        if stages[0][name].odd()
    )
    sides = []
    for side, of_runs in zip((a, b), found, strict=True):
        pairs = zip(side.runs, of_runs, strict=True)
        first, *repeats = (_without(run, stages, split) for run, stages in pairs)
        sides.append(Side(side.label, first, tuple(repeats)))
    names = frozenset(_renamed(name, odd) for name, odd in split.items())
    return Split(sides[0], sides[1], one_off, names, _steps(everywhere, found))


def _is_material(run: Run, stage: Stage) -> bool:
    """Return whether the odd instances of a stage take time that counts in a run."""
    gpu_time = number(run.launches["duration_ns"].sum())
    return _amounts(stage)[-1] > threshold("one_off_time") * gpu_time


def _amounts(stage: Stage) -> tuple[int, int, int, float]:
    """Return instances, odd ones, and launches and GPU time beyond those of as many usual ones."""
    odd = sorted(stage.odd())
    calls, gpu = np.bincount(stage.of), np.bincount(stage.of, weights=stage.gpu_ns)
    launches = float((calls[odd] - np.median(calls)).sum()) if odd else 0.0
    time = float((gpu[odd] - np.median(gpu)).sum()) if odd else 0.0
    return stage.instances, len(odd), round(launches), time


def _odd(stages: Iterable[Stage]) -> dict[int, set[int]]:
    """Return the instances that leave a stage, by the number of instances of a run."""
    found: dict[int, set[int]] = {}
    for stage in stages:
        found.setdefault(stage.instances, set()).update(stage.odd())
    return found


def _without(run: Run, stages: Stages, split: Mapping[str, Mapping[int, set[int]]]) -> Run:
    """Return the run with its odd instances in a stage of another name."""
    if not split:
        return run
    launches = run.launches.copy()
    names = launches["stage"].astype(object)
    for name, odd in split.items():
        stage = stages[name]
        away = stage.rows[np.isin(stage.of, sorted(odd[stage.instances]))]
        names.loc[away] = _renamed(name, odd)
    launches["stage"] = names
    split_run = replace(run)
    vars(split_run)["launches"] = launches  # where the cached property of a run keeps its table
    return split_run


def _renamed(stage: str, odd_by_count: Mapping[int, set[int]]) -> str:
    """Return the name of the odd instances of a stage: "forward, first", "forward, first 2"."""
    odd = set().union(*odd_by_count.values())
    if odd != set(range(len(odd))):
        return f"{stage}, uneven ones"
    return f"{stage}, first" if len(odd) == 1 else f"{stage}, first {len(odd)}"


def _steps(names: Sequence[str], found: Sequence[Sequence[Stages]]) -> tuple[Change, ...]:
    """Compare the time from the start of an instance to that of the next: a step of a loop.

    Of the stage with most GPU time in A. The median of a run, with its 95 % interval by ranks
    (binomial, normal approximation); of several runs, those of the medians. Where all stages have
    as many instances, also the share of a step in which kernels run: the sum of the medians of
    their GPU time over that time.
    """
    if not names:
        return ()
    name = max(names, key=lambda n: float(found[0][0][n].gpu_ns.sum()))
    times = [[_periods(stages[name]) for stages in side] for side in found]
    if not all(len(of) for side in times for of in side):
        return ()
    medians = [np.array([float(np.median(of)) for of in side]) for side in times]
    if len(times[0]) + len(times[1]) > 2:
        ratio = noise.of_runs(medians[0], medians[1])
        values = noise.middle(medians[0]), noise.middle(medians[1])
    else:
        a, b = (_median(side[0]) for side in times)
        ratio = noise.of_intervals(a, b, Text("steps"), threshold("host_floor"))
        values = a[0], b[0]
    label = Text("step time (median, from one {stage} to the next)", stage=name)
    changes = [change("step_time", label, "ns", values, ratio)]
    busy = [_gpu_of_step(names, side[0]) / value for side, value in zip(found, values, strict=True)]
    if all(0 < share <= 1 for share in busy):
        shares = Ratio(busy[1] / busy[0], floor=threshold("host_floor"))
        verdict = NEUTRAL.get(shares.verdict, shares.verdict)
        label = Text("share of the step time with a kernel running")
        values = busy[0], busy[1]
        changes.append(change("step_busy", label, "fraction", values, shares, verdict))
    return tuple(changes)


def queued_apart(a: Run, b: Run, stage: str) -> tuple[Change, ...]:
    """Compare the queued steps of a stage with such, and those that wait for the host with such.

    Medians, as of a step. Empty where all steps of both runs are of one kind.
    """
    frames = timeline(a), timeline(b)
    found = [None if frame is None else periods(frame, stage) for frame in frames]
    changes = []
    for key, label, queued in (
        ("queued_step", Text("step that was queued ahead (median)"), True),
        ("host_step", Text("step that waits for the host (median)"), False),
    ):
        times = [np.array([]) if of is None else of[0][of[1] == queued] for of in found]
        a_step, b_step = (_median(of) if len(of) >= FEWEST_ALIKE else NO_STEP for of in times)
        ratio = noise.of_intervals(a_step, b_step, Text("steps"), threshold("host_floor"))
        values = a_step[0], b_step[0]
        if not all(map(math.isnan, values)):
            changes.append(change(key, label, "ns", values, ratio))
    return tuple(changes) if len(changes) > 1 and None not in found else ()


def _gpu_of_step(names: Sequence[str], stages: Stages) -> float:
    """Return the GPU time of a usual step in ns; NaN where its stages are not entered alike."""
    if len({stages[name].instances for name in names}) > 1:
        return math.nan
    sums = [np.bincount(stages[n].of, weights=stages[n].gpu_ns) for n in names]
    return float(sum(np.median(of) for of in sums))


def _periods(stage: Stage) -> Values:
    """Return the times between starts of usual instances that follow each other, in ns."""
    odd = stage.odd()
    found = [
        np.diff(starts)[[not {at, at + 1} & odd for at in range(len(starts) - 1)]]
        for starts in stage.starts
    ]
    return np.concatenate(found) if found else np.array([])


def _median(values: Values) -> tuple[float, float, float]:
    """Return the median and the ends of its 95 % interval by ranks, n/2 -+ 0.98 sqrt(n)."""
    ordered, half = np.sort(values), 0.98 * math.sqrt(len(values))
    low = max(0, math.floor(len(values) / 2 - half))
    high = min(len(values) - 1, math.ceil(len(values) / 2 + half))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[high])
