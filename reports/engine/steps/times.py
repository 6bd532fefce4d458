"""What the trace tells of engine steps by kind, and what the host's own timing says of the same.

Times are in seconds. A step's time is from the start of its GPU work to that of the next step, or
to the end of its own for the last; busy + idle is that time. Of several GPUs, each has its row.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from nsight_prof.reports.load import Run

KINDS = ("prefill", "mixed", "decode")
NS = 1e-9
TRACED, UNTRACED, BEFORE = "traced", "untraced", "before the trace"
"""Host-timed steps: under the trace, of the target run by itself, and before tracing began."""


@dataclass(frozen=True)
class KindTime:
    """Steps of one kind: medians over steps and GPUs, in seconds.

    `idle_by` is the mean idle time of a step for each activity of the host, `idle_mean` that of
    all, `after_mean` what of it lies between the step's last GPU work and the next step's first.
    `total` is the time of all steps of the kind on one GPU.
    """

    kind: str
    steps: int
    seconds: float
    kernel: float
    memory: float
    busy: float
    idle: float
    after_mean: float
    launches: float
    idle_by: Mapping[str, float]
    idle_mean: float
    total: float


@dataclass(frozen=True)
class RankTime:
    """One GPU in the steps of one kind: means of a step, in seconds; `waiting` None: not known."""

    kind: str
    pid: int
    device: int
    seconds: float
    kernel: float
    collective: float
    exposed: float
    waiting: float | None
    idle: float


@dataclass(frozen=True)
class HostTime:
    """Host-timed steps of one kind: median seconds of a step, and how many there were."""

    kind: str
    when: str
    seconds: float
    steps: int


def timed_steps(run: Run) -> pd.DataFrame:
    """Steps with GPU work, with columns `time_ns` and `idle_here_ns`: of period or own work."""
    frame = run.engine_steps[run.engine_steps["gpu_start_ns"].notna()].copy()
    own = frame["gpu_end_ns"] - frame["gpu_start_ns"]
    frame["time_ns"] = frame["period_ns"].fillna(own)
    frame["idle_here_ns"] = frame["idle_ns"].fillna(frame["idle_inside_ns"])
    return frame


def kind_times(run: Run) -> tuple[KindTime, ...]:
    """Times of the kinds of steps that the trace has, in the order of KINDS."""
    steps = timed_steps(run)
    gaps = run.engine_gaps.merge(steps[["step", "pid", "device", "kind"]])
    found = []
    for kind in KINDS:
        mine = steps[steps["kind"] == kind]
        if mine.empty:
            continue
        idle = gaps[gaps["kind"] == kind].groupby("activity")["idle_ns"].sum()
        middle = mine[["time_ns", "kernel_ns", "memory_ns", "busy_ns", "idle_here_ns"]].median()
        by = (idle.sort_values(ascending=False) / len(mine) * NS).to_dict()
        after = mine["idle_after_ns"].mean()
        found.append(
            KindTime(
                kind=kind,
                steps=int(mine["step"].nunique()),
                seconds=float(middle["time_ns"]) * NS,
                kernel=float(middle["kernel_ns"]) * NS,
                memory=float(middle["memory_ns"]) * NS,
                busy=float(middle["busy_ns"]) * NS,
                idle=float(middle["idle_here_ns"]) * NS,
                after_mean=0.0 if pd.isna(after) else float(after) * NS,
                launches=float(mine["launches"].median()),
                idle_by={str(name): float(value) for name, value in by.items()},
                idle_mean=float(mine["idle_here_ns"].mean()) * NS,
                total=float(mine["time_ns"].sum()) * NS / mine.groupby(["pid", "device"]).ngroups,
            )
        )
    return tuple(found)


def rank_times(run: Run) -> tuple[RankTime, ...]:
    """Times of each GPU by kind of step; of one GPU only where it has collectives."""
    steps = timed_steps(run)
    ranks = steps.groupby(["pid", "device"]).ngroups
    if ranks < 2 and not steps["collective_ns"].sum():
        return ()
    found = []
    for kind in KINDS:
        for _, mine in steps[steps["kind"] == kind].groupby(["pid", "device"]):
            mean = mine[
                ["time_ns", "kernel_ns", "collective_ns", "collective_exposed_ns", "idle_here_ns"]
            ].mean()
            waiting = mine["collective_wait_ns"]
            found.append(
                RankTime(
                    kind=kind,
                    pid=int(mine["pid"].iloc[0]),
                    device=int(mine["device"].iloc[0]),
                    seconds=float(mean["time_ns"]) * NS,
                    kernel=float(mean["kernel_ns"]) * NS,
                    collective=float(mean["collective_ns"]) * NS,
                    exposed=float(mean["collective_exposed_ns"]) * NS,
                    waiting=None if waiting.isna().any() else float(waiting.mean()) * NS,
                    idle=float(mean["idle_here_ns"]) * NS,
                )
            )
    return tuple(found)


def host_times(run: Run) -> tuple[HostTime, ...]:
    """Host-timed steps by kind, where the same steps ran under the trace and without it.

    The host's step returns with the outputs of one engine step; one that returns none (the engine
    runs ahead) belongs to the next that does. The trace tells the kinds: of generations with as
    many outputs as the trace has steps with requests, the n-th is of the n-th step's kind.
    """
    kinds = _kinds(run)
    found = []
    for when, rows in _runs(run.host_steps):
        times: dict[str, list[float]] = {}
        for generation in rows:
            seconds = list(_of_outputs(generation))
            if len(seconds) != len(kinds):
                continue
            for kind, one in zip(kinds, seconds, strict=True):
                times.setdefault(kind, []).append(one)
        for kind in KINDS:
            if kind in times:
                median = statistics.median(times[kind])
                found.append(HostTime(kind, when, median, len(times[kind])))
    return tuple(found)


def trace_total(run: Run) -> float | None:
    """Seconds from the host's start of the first step to the end of the last step's GPU work."""
    steps = timed_steps(run)
    steps = steps[steps["pid"] == steps["pid"].min()]
    steps = steps[steps["device"] == steps["device"].min()].sort_values("step")
    if steps.empty:
        return None
    before = float(steps["gpu_start_ns"].iloc[0] - steps["host_start_ns"].iloc[0])
    return (before + float(steps["busy_ns"].sum() + steps["idle_here_ns"].sum())) * NS


def host_total(run: Run, when: str) -> float | None:
    """Median seconds of the host's whole generation of the traced batch; None where not timed."""
    count = len(_kinds(run))
    totals = [
        sum(seconds)
        for name, rows in _runs(run.host_steps)
        if name == when
        for generation in rows
        if len(seconds := list(_of_outputs(generation))) == count
    ]
    return statistics.median(totals) if totals else None


def _kinds(run: Run) -> list[str]:
    """Kinds of the traced steps that have requests, of the first process, in their order."""
    steps = run.engine_steps[run.engine_steps["kind"] != "empty"]
    if steps.empty:
        return []
    first = steps[steps["pid"] == steps["pid"].min()].drop_duplicates("step")
    return [str(kind) for kind in first.sort_values("step")["kind"]]


def _runs(steps: pd.DataFrame) -> Iterable[tuple[str, list[pd.DataFrame]]]:
    """Host-timed generations: under the trace, before it, and of the target by itself."""
    under = steps["traced"].fillna(False).astype(bool)
    traced = (steps["source"] == "trace") & under
    cases = set(steps[traced]["case"])
    same = steps["case"].isin(cases) & ~under
    parts = (
        (TRACED, steps[traced]),
        (BEFORE, steps[same & (steps["source"] == "trace")]),
        (UNTRACED, steps[same & (steps["source"] == "untraced")]),
    )
    for name, part in parts:
        grouped = part.groupby(["process", "case", "repeat"], sort=True)
        yield name, [rows.sort_values("index") for _, rows in grouped]


def _of_outputs(generation: pd.DataFrame) -> Iterable[float]:
    waited = 0.0
    for seconds, outputs in zip(generation["seconds"], generation["outputs"], strict=True):
        waited += float(seconds)
        if outputs:
            yield waited
            waited = 0.0
