"""Figures of engine steps: time and idle share over the trace with the clock, and idle causes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from nsight_prof.parsers.cells import records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.profiled import is_mixed
from nsight_prof.reports.engine.stages.kinds import first_gpu, timed_steps
from nsight_prof.reports.engine.stages.names import KIND_NAMES
from nsight_prof.reports.engine.steps.times import KindTime
from nsight_prof.reports.page import Number, Text, Verbatim
from nsight_prof.reports.page.charts import (
    Bar,
    BarFigure,
    Panel,
    Series,
    Span,
    TimelineFigure,
)
from nsight_prof.reports.page.units import quantity

MOST_BARS = 12
SMALL_CAUSE = 0.01
"""Part of a kind's idle time below which a cause has no bar."""
SAME_CYCLES = ("tensor", "fp32", "fp64", "fp16", "issue")
"""Bounds under which a launch takes the same number of cycles at any clock."""


def timeline(run: Run) -> TimelineFigure | None:
    """Return the steps of the first GPU over time; None for fewer than two."""
    steps = first_gpu(timed_steps(run))
    if len(steps) < 2:
        return None
    origin = float(steps["gpu_start_ns"].iloc[0])
    time = steps["time_ns"].astype(float)
    medians = time.groupby(steps["kind"]).transform("median")
    begin = ((steps["gpu_start_ns"] - origin) / 1e6).astype(float).tolist()
    x = (*begin, begin[-1] + float(time.iloc[-1]) / 1e6)
    idle = 100 * steps["idle_here_ns"].astype(float) / time
    panels = [
        Panel("step against the\nmedian of its kind, %", (_steps("step", x, 100 * time / medians),),
              y_zero=False),
        Panel("GPU idle,\n% of the step", (_steps("idle", x, idle),)),
    ]  # fmt: skip
    if clock := _clock(run, steps, origin):
        panels.append(Panel("SM clock, GHz", (clock,), y_zero=False))
    return TimelineFigure(
        name="engine-steps",
        title="Steps of the engine on the GPU",
        alt="Lines over time: length of each engine step against the median of its kind, idle "
        "share of the GPU, and the SM clock",
        x_label="ms since the first step began on the GPU",
        panels=tuple(panels),
        spans=_spans(steps["kind"].tolist(), medians.tolist(), x),
        subtitle="Each step as long as the GPU needs from its start to that of the next. The clock "
        "is that of launches that take the same cycles each time."
        if clock
        else "Each step as long as the GPU needs from its start to that of the next.",
    )


def _steps(label: str, x: tuple[float, ...], y: pd.Series[float]) -> Series:
    values = y.fillna(0.0).tolist()
    return Series(label, x, (*values, values[-1]), style="steps")


def _clock(run: Run, steps: pd.DataFrame, origin: float) -> Series | None:
    """Return the SM clock by the launches of kernels that arithmetic limits; None without any.

    The clock under ncu x the duration there over that in the trace: cycles are the same.
    """
    mixed = {text(row["kernel_id"]) for row in records(run.kernels) if is_mixed(row)}
    counters = run.counters[run.counters["bound_by"].isin(SAME_CYCLES)]
    cycles = (counters["sm_clock_hz"] * counters["duration_ns"]).astype(float)
    by_kernel = {
        str(key): value
        for key, value in zip(counters["kernel_id"], cycles, strict=True)
        if str(key) not in mixed and math.isfinite(value)
    }
    launches = run.launches[run.launches["kernel_id"].isin(list(by_kernel))]
    launches = launches[launches["device"] == steps["device"].iloc[0]].sort_values("start_ns")
    if launches.empty:
        return None
    clock = launches["kernel_id"].astype(str).map(by_kernel) / launches["duration_ns"] / 1e9
    start = (launches["start_ns"] - origin) / 1e6
    return Series("clock", tuple(start.astype(float)), tuple(clock.astype(float)), style="points")


def _spans(kinds: list[str], medians: list[float], x: tuple[float, ...]) -> tuple[Span, ...]:
    """Return spans of steps of one kind that follow each other, with their median."""
    spans: list[Span] = []
    for kind, median, begin, end in zip(kinds, medians, x, x[1:], strict=False):
        if spans and spans[-1].group == kind:
            spans[-1] = spans[-1]._replace(end=end)
        else:
            spans.append(Span(begin, end, kind, _of_step(kind, median)))
    return tuple(spans)


def _of_step(kind: str, median_ns: float) -> Text:
    time = Number(median_ns, "ns").at_digits(3)
    return Text("{kind}, {time} per step", kind=KIND_NAMES.get(kind) or Verbatim(kind), time=time)


def idle_causes(kinds: Sequence[KindTime]) -> BarFigure | None:
    """Return the idle time of a step by what the host did; None without any."""
    causes = [
        (kind, activity, idle)
        for kind in kinds
        for activity, idle in kind.idle_by.items()
        if idle >= SMALL_CAUSE * kind.idle_mean
    ][:MOST_BARS]
    if not causes:
        return None
    return BarFigure(
        name="engine-idle",
        title="What the GPU waited for in a step",
        alt="Bars: idle time of the GPU in a step of each kind, by what the host did meanwhile",
        value_label="GPU idle, % of the step",
        bars=tuple(
            Bar(activity, 100 * (kind.share(idle).value or 0.0), group=kind.kind,
                text=quantity(idle, "ns", 3))
            for kind, activity, idle in causes
        ),
    )  # fmt: skip
