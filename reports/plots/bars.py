"""Bars: share of GPU time, and achieved against theoretical occupancy, one row per kernel."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from nsight_prof.reports.page.figure_models import OccupancyBar, TimeBar
from nsight_prof.reports.page.formats import NA, duration, percent, share
from nsight_prof.reports.page.values import Text, Word, Words
from nsight_prof.reports.plots.palette import BLUE, INK, VERMILLION, family
from nsight_prof.reports.plots.rows import Head, Rows, draw_bar
from nsight_prof.reports.plots.sheet import Key
from nsight_prof.reports.plots.spots import tooltip
from nsight_prof.reports.plots.style import fit, style, text_width
from nsight_prof.reports.plots.words import labelled, of_gpu_time, say

THICK = 0.62
TEXT = 296.0  # pixels for the words beside the occupancy bars
WIDEST = 360.0  # the same where a limiter has many words


def plot_time(bars: Sequence[TimeBar], gpu_time_ns: float | None, gpus: int = 1) -> Figure:
    """Return share of GPU time as one bar a kernel, coloured by what the kernel does.

    `gpu_time_ns` is the sum over `gpus` GPUs.
    """
    with style():
        families = dict.fromkeys(family(bar.category) for bar in bars if bar.number)
        head = Head(
            _time_title(gpu_time_ns, gpus),
            "Share of the time of all kernels, then total time and number of launches.",
            tuple(Key(name, colour) for colour, name in families),
            "Share of GPU time",
        )
        rows = Rows(head, [(bar.number, bar.label) for bar in bars], right=190)
        top = max([100 * bar.share for bar in bars] + [1.0]) * 1.02
        axes = rows.axes(top, "%")
        for row, bar in enumerate(bars):
            colour = family(bar.category)[0] if bar.number else "#cccccc"
            draw_bar(axes, row, 100 * bar.share, THICK, facecolor=colour)
            text = share(bar.share)
            if bar.total_ns is not None:
                text += f" · {duration(bar.total_ns)}"
            if bar.calls is not None:
                text += f" · {bar.calls:,}x"
            rows.sheet.text(rows.x(100 * bar.share, top) + 6, rows.y(row), text)
            rows.spot(row, _time_told(bar), bar.number)
        return rows.sheet.figure


def plot_occupancy(bars: Sequence[OccupancyBar]) -> Figure:
    """Return achieved occupancy as bars, theoretical occupancy as a mark, and its limiter."""
    with style():
        head = Head(
            "Occupancy: warps resident on an SM",
            "Achieved while the kernel ran, against what registers, shared memory and block size "
            "allow (theoretical), and which of them allows no more. Low occupancy is a fault only "
            "where a kernel waits.",
            (
                Key("achieved", BLUE),
                Key("theoretical", VERMILLION, "D", 6.0),
            ),
            "Per cent of the warps an SM can hold",
        )
        limits = [_limits(bar) for bar in bars]
        widest = max((text_width(limit) for limit in limits), default=0.0)
        right = min(max(TEXT, widest + 24), WIDEST)
        rows = Rows(head, [(str(bar.number), bar.label) for bar in bars], right=right)
        axes = rows.axes(100, "%")
        for row, bar in enumerate(bars):
            if bar.achieved_pct is not None:
                draw_bar(axes, row, bar.achieved_pct, THICK, facecolor=BLUE)
            if bar.theoretical_pct is not None:
                axes.plot([bar.theoretical_pct], [row], "D", color=VERMILLION, markersize=6,
                          markeredgecolor=INK, markeredgewidth=0.6, clip_on=False)  # fmt: skip
            rows.sheet.text(rows.right + 14, rows.y(row), fit(limits[row], right - 24))
            rows.spot(row, _occupancy_told(bar), str(bar.number))
        return rows.sheet.figure


def _time_title(gpu_time_ns: float | None, gpus: int) -> Words:
    total = duration(gpu_time_ns)
    if total == NA:
        return Text("GPU time by kernel")
    if gpus == 1:
        return Text("Where the GPU time goes: {total} in kernels", total=total)
    return Text("Where the GPU time goes: {total} in kernels on {n} GPUs", total=total, n=gpus)


def _time_told(bar: TimeBar) -> str:
    of = of_gpu_time(bar.share)
    if bar.total_ns is None or bar.calls is None:
        return tooltip(f"{bar.number} {bar.label}", of)
    launches = Text("{time} in {n} launch", "{time} in {n} launches",
                    time=duration(bar.total_ns), n=bar.calls)  # fmt: skip
    each = say(launches)
    return tooltip(f"{bar.number} {bar.label}", of, each, family(bar.category)[1])


def _occupancy_told(bar: OccupancyBar) -> str:
    return tooltip(
        f"{bar.number} {bar.label}",
        labelled(Text("achieved"), percent(bar.achieved_pct)),
        labelled(Text("theoretical"), percent(bar.theoretical_pct)),
        say(Text("limited by {limiter}", limiter=_limiter(bar))) if bar.limiter else "",
        of_gpu_time(bar.share),
    )


def _limiter(bar: OccupancyBar) -> Text:
    """Return what allows no more warps: several things where they allow the same."""
    return Text("{limits}", limits=[Word(name) for name in bar.limiter.split(", ")])


def _limits(bar: OccupancyBar) -> str:
    if bar.achieved_pct is None and bar.theoretical_pct is None:
        return NA
    achieved, theoretical = percent(bar.achieved_pct), percent(bar.theoretical_pct)
    of = say(Text("{part} of {total}", part=achieved.removesuffix(" %"), total=theoretical))
    full = bar.theoretical_pct is not None and bar.theoretical_pct >= 100
    return labelled(of, say(_limiter(bar))) if bar.limiter and not full else of
