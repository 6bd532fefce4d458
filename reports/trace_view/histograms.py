"""Small histograms: durations of the launches of a kernel, and GPU time by share of a roof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nsight_prof.parsers.cells import records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.timeline import timeline
from nsight_prof.reports.page import Name, Number, Ref, Text
from nsight_prof.reports.page.catalogue import ENGLISH
from nsight_prof.reports.page.formats import duration, share
from nsight_prof.reports.plots.palette import COLOURS, family
from nsight_prof.reports.profile.view_models import KernelRow, ReportView
from nsight_prof.reports.trace_view.still import WIDTH, Pen, Still

LEAST_LAUNCHES = 20
"""Launches from which on their durations have a shape."""
LEAST_SPREAD = 1.2
"""95th over 5th percentile from which on there is something to see."""
BINS, TENTHS = 60, 10
LEFT, TALL, FOOT, APART = 60.0, 70.0, 20.0, 80.0
NEAR, FAR = 0.8, 0.5
"""Shares of a roof that count as near it, and below which a kernel is far from it."""
AXIS = Text("duration of a launch; height: launches")
ROOF_AXIS = Text("share of its roof that a kernel reaches; height: GPU time")
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Histogram:
    """A histogram; `caption` is what one sees."""

    alt: Text
    caption: Text
    picture: Still

    def svg(self, language: str = ENGLISH) -> str:
        """Return the file in a language."""
        return self.picture.file(language)

    def html(self, language: str = ENGLISH) -> str:
        """Return what the HTML page of a language has."""
        return self.picture.inline(language)


@dataclass(frozen=True)
class _Bars:
    heights: Array
    edges: Array
    colour: str
    ticks: tuple[tuple[float, str], ...]
    labels: tuple[Text, ...]
    axis: Text


def duration_histograms(run: Run, kernels: Sequence[KernelRow]) -> dict[int, Histogram]:
    """Return the durations of the launches of each kernel, by its number.

    Only kernels with many launches have one, and only where these differ.
    """
    frame = timeline(run)
    if frame is None:
        return {}
    by_kernel = frame[["kernel_id", "stage", "duration_ns"]].groupby("kernel_id", observed=True)
    launches = {str(kernel_id): rows for kernel_id, rows in by_kernel}
    found = {}
    for kernel in kernels:
        if (kernel.calls or 0) < LEAST_LAUNCHES or kernel.kernel_id not in launches:
            continue
        histogram = _durations(kernel, launches[kernel.kernel_id])
        if histogram is not None:
            found[kernel.number] = histogram
    return found


def _durations(kernel: KernelRow, launches: pd.DataFrame) -> Histogram | None:
    times = launches["duration_ns"].to_numpy(float)
    low, first, middle, third, high = np.percentile(times, (5, 25, 50, 75, 95))
    if not high > LEAST_SPREAD * low:
        return None
    # A few launches that take many times as long would leave the others one bar.
    shortest, longest = float(times.min()), float(times.max())
    scale = np.geomspace if longest > 4 * shortest > 0 else np.linspace
    edges = scale(shortest, longest, BINS + 1)
    heights, _ = np.histogram(times, edges)
    labels = tuple(
        Text("{n} launches of {low} to {high}", n=int(n), low=duration(a), high=duration(b))
        for n, a, b in zip(heights, edges[:-1], edges[1:], strict=True)
    )
    ticks = tuple((float(at), duration(at)) for at in dict.fromkeys((shortest, middle, longest)))
    bars = _Bars(
        heights.astype(float), edges, COLOURS[family(kernel.category)[0]], ticks, labels, AXIS
    )
    cell = Ref("kernels", kernel.kernel_id)
    sentence = Text(
        "Half of the {n} launches take {first} to {third}, 1 in 20 takes {high} or longer.{stages}",
        n=len(times),
        first=Number(first, "ns", (cell,)),
        third=Number(third, "ns", (cell,)),
        high=Number(high, "ns", (cell,)),
        stages=_by_stage(launches),
    )
    alt = Text("Histogram: durations of the launches of kernel {number}", number=kernel.number)
    return _histogram(bars, alt, sentence, logarithmic=scale is np.geomspace)


def _by_stage(launches: pd.DataFrame) -> Text | str:
    """Return the medians of stages where they tell why launches differ."""
    medians = (
        launches[launches["stage"] != ""].groupby("stage", observed=True)["duration_ns"].median()
    )
    if len(medians) < 2 or not medians.max() > LEAST_SPREAD * medians.min():
        return ""
    ranked = medians.sort_values(ascending=False).head(4).reset_index()
    stages = [
        Text(
            "{stage} {time}", stage=Name(text(row["stage"])), time=Number(row["duration_ns"], "ns")
        )
        for row in records(ranked)
    ]
    return Text(" Medians by stage: {stages}.", stages=stages)


def roof_histogram(view: ReportView) -> Histogram | None:
    """Return the GPU time by share of the roof that limits it; None where no kernel has one."""
    known = [(k.roof_share, k.share) for k in view.kernels if k.roof_share is not None and k.share]
    if len(known) < 2:
        return None
    reached = np.array([min(fraction, 1.0) for fraction, _ in known])
    time = np.array([fraction for _, fraction in known])
    edges = np.linspace(0, 1, TENTHS + 1)
    heights, _ = np.histogram(reached, edges, weights=time)
    labels = tuple(
        Text(
            "{share} of the GPU time at {low} to {high} of its roof",
            share=share(fraction),
            low=share(a),
            high=share(b),
        )
        for fraction, a, b in zip(heights, edges[:-1], edges[1:], strict=True)
    )
    ticks = tuple((at / 100, f"{at} %") for at in (0, 25, 50, 75, 100))
    sentence = Text(
        "Kernels with {near} of the GPU time reach {limit} of their roof or more, kernels with "
        "{far} less than {half}.",
        near=Number(time[reached >= NEAR].sum(), "fraction"),
        limit=Number(NEAR, "fraction"),
        far=Number(time[reached < FAR].sum(), "fraction"),
        half=Number(FAR, "fraction"),
    )
    alt = Text("Histogram: GPU time by the share of its roof that each kernel reaches")
    return _histogram(_Bars(heights, edges, "blue", ticks, labels, ROOF_AXIS), alt, sentence)


def _histogram(bars: _Bars, alt: Text, sentence: Text, *, logarithmic: bool = False) -> Histogram:
    return Histogram(alt, sentence, _draw(bars, alt, logarithmic))


def _draw(bars: _Bars, alt: Text, logarithmic: bool) -> Still:
    pen = Pen()
    first, last = bars.edges[0], bars.edges[-1]
    if logarithmic:
        first, last = np.log(first), np.log(last)

    def x_of(value: float) -> float:
        at = np.log(value) if logarithmic else value
        return float(LEFT + (WIDTH - 2 * LEFT) * (at - first) / (last - first))

    pen.path(f"M{LEFT:g} {TALL + 4:g}H{WIDTH - LEFT:g}v1H{LEFT:g}Z", "quiet")
    top = float(bars.heights.max())
    ends = zip(bars.edges[:-1], bars.edges[1:], strict=True)
    for height, (begin, end), label in zip(bars.heights, ends, bars.labels, strict=True):
        if height:
            # One launch among thousands is seen, too.
            tall = max(TALL * float(height) / top, 1.5)
            x = x_of(begin)
            pen.box(x, TALL + 4 - tall, x_of(end) - x, tall, bars.colour, label)
    before = -float(WIDTH)
    for value, words in bars.ticks:
        x = x_of(value)
        if x - before >= APART:
            pen.text(x, TALL + FOOT, words, APART, "quiet", anchor="middle")
            before = x
    pen.text(WIDTH / 2, TALL + 2 * FOOT - 4, bars.axis, WIDTH, "quiet", anchor="middle")
    return pen.done(TALL + 2 * FOOT, alt)
