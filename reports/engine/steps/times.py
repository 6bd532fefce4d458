"""Time of engine steps by kind: of the trace, of each GPU, and by the host's own clock.

Times of the trace are in ns, those of the host in seconds. A step's time is from the start of its
GPU work to that of the next step, or to the end of its own for the last; busy + idle is that time.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from nsight_prof.parsers.nsys.engine.gaps import OF_GPU
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.stages.kinds import first_gpu, timed_steps
from nsight_prof.reports.engine.stages.names import KIND_NAMES
from nsight_prof.reports.page import Number, Ref

TRACED, BEFORE, UNTRACED = "traced", "before the trace", "untraced"
"""Host-timed steps: under the trace, before tracing began, and of the target run by itself."""
MEDIANS = ("time_ns", "kernel_ns", "memory_ns", "busy_ns", "idle_here_ns", "launches")
MEANS = (
    "time_ns",
    "kernel_ns",
    "collective_ns",
    "collective_exposed_ns",
    "idle_here_ns",
    "collective_wait_ns",
)


@dataclass(frozen=True)
class KindTime:
    """Steps of one kind; `median` is over steps and GPUs by column of MEDIANS.

    `idle_by` is the mean idle time of a step for each activity of the host, `idle_mean` that of
    all, `after_mean` the idle time between the step's last GPU work and the next step's first.
    `total` is the time of all steps of the kind on one GPU.
    """

    kind: str
    steps: int
    median: Mapping[str, float]
    after_mean: float
    idle_by: Mapping[str, float]
    idle_mean: float
    total: float

    @cached_property
    def host_idle(self) -> float:
        """Mean idle time of a step that the host causes."""
        return sum(ns for activity, ns in self.idle_by.items() if activity not in OF_GPU)

    def middle(self, column: str) -> Number:
        """Return the median over its steps."""
        return self.number(self.median[column], "ns", column)

    def share(self, idle_ns: float) -> Number:
        """Return idle time as a part of the median step."""
        step = self.median["busy_ns"] + self.median["idle_here_ns"]
        return self.number(idle_ns / step if step else 0.0, "fraction", "idle_ns")

    def number(self, value: float, unit: str, column: str = "") -> Number:
        """Return a value that rests on its steps."""
        return Number(value, unit, (Ref("step_times", self.kind, column),))


@dataclass(frozen=True)
class RankTime:
    """One GPU in the steps of one kind: means of a step by column of MEANS.

    The wait in collectives is NaN where it is not known.
    """

    kind: str
    pid: int
    device: int
    mean: Mapping[str, float]

    def number(self, column: str) -> Number:
        """Return the mean of a column."""
        missing = "not known how long it waits for other GPUs" if column == MEANS[-1] else ""
        return Number(self.mean[column], "ns", missing=missing)


@dataclass(frozen=True)
class HostClock:
    """What the host timed of the traced batch, in seconds: its steps by (when, kind), and all."""

    steps: Mapping[tuple[str, str], Sequence[float]]
    batches: Mapping[str, Sequence[float]]

    def step(self, when: str, kind: str) -> Number:
        """Return the median step of a kind."""
        return _median(self.steps.get((when, kind), ()))

    def batch(self, when: str) -> Number:
        """Return the median time of the whole batch."""
        return _median(self.batches.get(when, ()))


def kind_times(run: Run) -> tuple[KindTime, ...]:
    """Return the times of the kinds of steps that the trace has."""
    steps = timed_steps(run)
    gaps = run.engine_gaps.merge(steps[["step", "pid", "device", "kind"]])
    found = []
    for kind in KIND_NAMES:
        rows = steps[steps["kind"] == kind]
        if rows.empty:
            continue
        idle = gaps[gaps["kind"] == kind].groupby("activity")["idle_ns"].sum()
        by_activity = idle.sort_values(ascending=False) / len(rows)
        after = rows["idle_after_ns"].mean()
        found.append(
            KindTime(
                kind,
                int(rows["step"].nunique()),
                {column: float(rows[column].median()) for column in MEDIANS},
                0.0 if pd.isna(after) else float(after),
                {str(activity): float(ns) for activity, ns in by_activity.items()},
                float(rows["idle_here_ns"].mean()),
                float(rows["time_ns"].sum()) / rows.groupby(["pid", "device"]).ngroups,
            )
        )
    return tuple(found)


def rank_times(run: Run) -> tuple[RankTime, ...]:
    """Return the times of each GPU by kind of step; of one GPU only where it has collectives."""
    steps = timed_steps(run)
    if steps.groupby(["pid", "device"]).ngroups < 2 and not steps["collective_ns"].sum():
        return ()
    found = []
    for kind in KIND_NAMES:
        for _, rows in steps[steps["kind"] == kind].groupby(["pid", "device"]):
            mean = {c: float(rows[c].astype("float64").mean(skipna=False)) for c in MEANS}
            pid, device = (int(rows[name].iloc[0]) for name in ("pid", "device"))
            found.append(RankTime(kind, pid, device, mean))
    return tuple(found)


def host_clock(run: Run) -> HostClock:
    """Return the host-timed steps, where the same steps ran under the trace and without it.

    The host's step returns with the outputs of one engine step; one that returns none (the engine
    runs ahead) belongs to the next that does. The trace has the kinds: of generations with as many
    outputs as the trace has steps with requests, the n-th is of the n-th step's kind.
    """
    traced = run.engine_steps[run.engine_steps["kind"] != "empty"]
    first = traced[traced["pid"] == traced["pid"].min()].drop_duplicates("step")
    kinds = [str(kind) for kind in first.sort_values("step")["kind"]]
    steps: dict[tuple[str, str], list[float]] = defaultdict(list)
    batches: dict[str, list[float]] = defaultdict(list)
    for when, generation in _generations(run.host_steps):
        seconds = list(_with_outputs(generation))
        if kinds and len(seconds) == len(kinds):
            batches[when].append(sum(seconds))
            for kind, time in zip(kinds, seconds, strict=True):
                steps[when, kind].append(time)
    return HostClock(dict(steps), dict(batches))


def trace_total(run: Run) -> Number:
    """Return the time from the host's start of the first step to the end of the last's GPU work."""
    steps = first_gpu(timed_steps(run))
    if steps.empty:
        return Number(None, "s")
    before = float(steps["gpu_start_ns"].iloc[0] - steps["host_start_ns"].iloc[0])
    return Number((before + float(steps["busy_ns"].sum() + steps["idle_here_ns"].sum())) / 1e9, "s")


def _generations(steps: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the host-timed generations of the traced case, each with when it ran."""
    under = steps["traced"].fillna(False).astype(bool)
    traced = (steps["source"] == "trace") & under
    same = steps["case"].isin(set(steps[traced]["case"])) & ~under
    for when, rows in (
        (TRACED, steps[traced]),
        (BEFORE, steps[same & (steps["source"] == "trace")]),
        (UNTRACED, steps[same & (steps["source"] == "untraced")]),
    ):
        for _, generation in rows.groupby(["process", "case", "repeat"], sort=True):
            yield when, generation.sort_values("index")


def _with_outputs(generation: pd.DataFrame) -> Iterator[float]:
    pending = 0.0
    for seconds, outputs in zip(generation["seconds"], generation["outputs"], strict=True):
        pending += float(seconds)
        if outputs:
            yield pending
            pending = 0.0


def _median(seconds: Sequence[float]) -> Number:
    return Number(statistics.median(seconds) if seconds else None, "s", missing="not timed")
