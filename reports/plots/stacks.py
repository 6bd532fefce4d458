"""Stacked bars: stall reasons of each kernel, and times by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsight_prof.reports.page.charts import StackFigure
from nsight_prof.reports.page.figure_models import StallFigure
from nsight_prof.reports.page.formats import duration, percent
from nsight_prof.reports.plots.palette import INK, SERIES, text_on
from nsight_prof.reports.plots.rows import Head, Rows, draw_bar
from nsight_prof.reports.plots.sheet import Ink, Key, tooltip
from nsight_prof.reports.plots.style import HATCHES, fit, style, text_width
from nsight_prof.reports.plots.words import labelled, say

THICK = 0.7
SHOWN = 7  # as many colours as stay apart; what is left is "other"
OTHER = "#bbbbbb"
LONGEST = 380.0  # pixels of a name in the key


@dataclass(frozen=True)
class Part:
    """One part of a stacked bar: `width` in the unit of the axis, `tooltip` what it is in full."""

    look: Key
    width: float
    text: str
    tooltip: str
    kernel: str = ""


def _looks(names: Sequence[str]) -> list[Key]:
    """Return a colour and a hatch for each name; "other" is grey."""
    keys = []
    for index, name in enumerate(names):
        if name.startswith("other") or index >= SHOWN:
            keys.append(Key(fit(name, LONGEST), OTHER))
        else:
            keys.append(Key(fit(name, LONGEST), SERIES[index], hatch=HATCHES[index]))
    return keys


def plot_stalls(figure: StallFigure) -> Figure:
    """Return for each kernel what its warps waited for, stacked to 100 %."""
    with style():
        keys = _looks([reason.replace("_", " ") for reason in figure.reasons])
        head = Head(
            "Stall reasons: what warps wait for between two instructions",
            "Share of the time between two instructions of a warp. The report says below what each "
            "reason means.",
            tuple(keys),
            "Share of warp time",
        )
        rows = Rows(head, [(str(bar.number), bar.label) for bar in figure.bars], right=24)
        axes = rows.axes(100, "%")
        for row, bar in enumerate(figure.bars):
            label = f"{bar.number} {bar.label}"
            segments = [
                Part(key, 100 * value, f"{100 * value:.0f}",
                     tooltip(label, labelled(key.text, percent(100 * value)), meaning),
                     str(bar.number))
                for key, value, meaning in zip(keys, bar.shares, figure.meanings, strict=True)
            ]  # fmt: skip
            _stack(rows, axes, row, segments, 100)
        return rows.sheet.figure


def plot_stacks(figure: StackFigure) -> Figure:
    """Return stacked bars of times; the first groups have a colour."""
    with style():
        keys = _looks(figure.groups)
        longest = max((sum(bar.values) for bar in figure.bars), default=0.0)
        unit, scale = _unit(longest)
        head = Head(
            figure.title, figure.subtitle, tuple(keys), f"{say(figure.value_label)} ({unit})"
        )
        rows = Rows(head, [("", bar.label) for bar in figure.bars], right=150)
        top = longest / scale * 1.02 or 1.0
        axes = rows.axes(top, "")
        for row, bar in enumerate(figure.bars):
            if not bar.values:
                rows.sheet.text(rows.left + 6, rows.y(row), fit(bar.text, 500))
                continue
            segments = [
                Part(key, value / scale, f"{value / scale:.3g}",
                     tooltip(name, bar.label, duration(value)))
                for key, value, name in zip(keys, bar.values, figure.groups, strict=True)
            ]  # fmt: skip
            _stack(rows, axes, row, segments, top)
            rows.sheet.text(rows.x(sum(bar.values) / scale, top) + 6, rows.y(row), bar.text)
        return rows.sheet.figure


def _stack(rows: Rows, axes: Axes, row: int, segments: Sequence[Part], top: float) -> None:
    x0 = 0.0
    for segment in segments:
        if segment.width > 0:
            draw_bar(axes, row, segment.width, THICK, x=x0, facecolor=segment.look.colour,
                     hatch=segment.look.hatch, edgecolor="white", linewidth=0.4)  # fmt: skip
            corner = rows.x(x0, top), rows.x(x0 + segment.width, top)
            rows.spot(row, segment.tooltip, segment.kernel, corner)
        room = rows.x(segment.width, top) - rows.left
        if room > text_width(segment.text) + 8:
            hatched = bool(segment.look.hatch)
            middle = rows.x(x0 + segment.width / 2, top)
            rows.sheet.text(middle, rows.y(row), segment.text, Ink(ha="center", halo=hatched,
                            colour=INK if hatched else text_on(segment.look.colour)))  # fmt: skip
        x0 += segment.width


def _unit(largest_ns: float) -> tuple[str, float]:
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if largest_ns >= scale:
            return unit, scale
    return "ns", 1.0
