"""Figures of engine steps: busy and idle time over the trace, and idle time by cause."""

from __future__ import annotations

import pandas as pd

from nsight_prof.reports.engine.steps.times import KindTime, timed_steps
from nsight_prof.reports.formats import seconds
from nsight_prof.reports.load import Run
from nsight_prof.reports.page.charts import (
    Bar,
    BarFigure,
    Chart,
    Panel,
    Series,
    Span,
    TimelineFigure,
)

MS = 1e-6
MOST_BARS = 12


def figures(run: Run, kinds: tuple[KindTime, ...]) -> tuple[Chart, ...]:
    """Return the figures of the first GPU's steps and of the idle time of all."""
    steps = timed_steps(run)
    made = [_timeline(steps), _causes(kinds)]
    return tuple(figure for figure in made if figure is not None)


def _timeline(steps: pd.DataFrame) -> TimelineFigure | None:
    first = steps[steps["pid"] == steps["pid"].min()]
    first = first[first["device"] == first["device"].min()].sort_values("gpu_start_ns")
    if len(first) < 2:
        return None
    origin = first["gpu_start_ns"].iloc[0]
    begin = ((first["gpu_start_ns"] - origin) * MS).astype(float).tolist()
    time = (first["time_ns"] * MS).astype(float).tolist()
    until = begin[-1] + time[-1]
    idle = (first["idle_here_ns"] * MS).astype(float).tolist()
    busy = [a - b for a, b in zip(time, idle, strict=True)]
    share = [100 * b / a if a else 0.0 for a, b in zip(time, busy, strict=True)]
    x = (*begin, until)
    return TimelineFigure(
        name="engine-steps",
        title="Steps of the engine on the GPU",
        alt="Lines over time: length of each engine step, and the busy share of the GPU",
        x_label="ms since the first step began on the GPU",
        panels=(
            Panel(
                "a step (ms)",
                (_steps("time of the step", x, time),),
                y_log=max(time) > 10 * min(t for t in time if t > 0),
            ),
            Panel("busy (% of the step)", (_steps("busy", x, share),)),
        ),
        spans=_spans(first["kind"].tolist(), begin, until),
        subtitle="Each step as long as the GPU needs from its start to that of the next.",
    )


def _steps(label: str, x: tuple[float, ...], y: list[float]) -> Series:
    return Series(label, x, (*y, y[-1]), style="steps")


def _spans(kinds: list[str], begin: list[float], until: float) -> tuple[Span, ...]:
    """Spans of steps of one kind that follow each other."""
    spans: list[Span] = []
    for place, kind in enumerate(kinds):
        end = begin[place + 1] if place + 1 < len(begin) else until
        if spans and spans[-1].group == kind:
            spans[-1] = spans[-1]._replace(end=end)
        else:
            spans.append(Span(begin[place], end, kind, kind))
    return tuple(spans)


def _causes(kinds: tuple[KindTime, ...]) -> BarFigure | None:
    shown = [
        (kind.kind, name, value)
        for kind in kinds
        for name, value in kind.idle_by.items()
        if value >= 0.01 * kind.idle_mean
    ][:MOST_BARS]
    if not shown:
        return None
    unit, scale = ("ms", 1e3) if max(value for *_, value in shown) >= 2e-3 else ("us", 1e6)
    return BarFigure(
        name="engine-idle",
        title="What the GPU waited for in a step",
        alt="Bars: idle time of the GPU in a step of each kind, by what the host did meanwhile",
        value_label=f"{unit} of GPU idle time a step",
        bars=tuple(
            Bar(name, value * scale, group=kind, text=seconds(value)) for kind, name, value in shown
        ),
    )
