"""Horizontal bars of measured values with their intervals, and lines to compare them with."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsight_prof.reports.page.charts import Bar, BarFigure
from nsight_prof.reports.page.formats import known, significant
from nsight_prof.reports.page.values import Text, Words
from nsight_prof.reports.plots.bench.lines import stacked
from nsight_prof.reports.plots.palette import GREY, INK, QUIET, SERIES, STAGES
from nsight_prof.reports.plots.rows import Head, Rows, draw_bar
from nsight_prof.reports.plots.sheet import Ink, Key, tooltip
from nsight_prof.reports.plots.style import LINE, fit, style, text_width
from nsight_prof.reports.plots.words import labelled, range_of

THICK = 0.62
WORDS = 300.0  # widest text behind a bar, in pixels


def plot_bars(figure: BarFigure) -> Figure:
    """Return one bar a row from 0; a bar without a value shows only its text."""
    with style():
        groups = list(dict.fromkeys(bar.group for bar in figure.bars))
        palette = (*SERIES, *(GREY for _ in groups))
        colours = {group: STAGES.get(group) or palette[n] for n, group in enumerate(groups)}
        keys = [Key(group, colours[group]) for group in groups if group] if len(groups) > 1 else []
        top = _top(figure)
        words = [fit(bar.text, WORDS) for bar in figure.bars]
        texts = max((text_width(word) for word in words), default=0.0)
        head = Head(figure.title, figure.subtitle, tuple(keys), figure.value_label)
        # A label that goes on is said once, beside the first of its bars.
        befores = ["", *(bar.label for bar in figure.bars)]
        names = [
            ("", "" if bar.label == before else bar.label)
            for bar, before in zip(figure.bars, befores, strict=False)
        ]
        rows = Rows(head, names, right=texts + 18, gap=_gap(figure))
        axes = rows.axes(top, "")
        for row, (bar, word) in enumerate(zip(figure.bars, words, strict=True)):
            _bar(rows, axes, row, bar._replace(text=word), colours[bar.group], top)
            rows.spot(row, _tooltip(bar, figure.value_label))
        _levels(rows, axes, figure, top)
        return rows.sheet.figure


def _tooltip(bar: Bar, label: Words) -> str:
    value = labelled(label, significant(bar.value)) if known(bar.value) is not None else ""
    low, high = known(bar.low), known(bar.high)
    between = low is not None and high is not None
    interval = (
        labelled(Text("interval"), range_of(significant(low), significant(high))) if between else ""
    )
    return tooltip(bar.label, bar.group, value, interval, bar.text)


def _top(figure: BarFigure) -> float:
    """Return the end of the axis: above every bar, interval and level."""
    ends = [value for bar in figure.bars for value in (bar.value, bar.high)]
    ends += [value for value, _ in figure.levels]
    return max((v for v in ends if v is not None and math.isfinite(v)), default=1.0) * 1.02 or 1.0


def _gap(figure: BarFigure) -> float:
    # One row of text for each level is enough: where they fit side by side some room stays free.
    return LINE * min(len(figure.levels), 3) + 4 if figure.levels else 0.0


def _bar(rows: Rows, axes: Axes, row: int, bar: Bar, colour: str, top: float) -> None:
    value = bar.value if bar.value is not None and math.isfinite(bar.value) else None
    end = value or 0.0
    if value is not None:
        draw_bar(axes, row, value, THICK, facecolor=colour)
    low, high = bar.low, bar.high
    if low is not None and high is not None and math.isfinite(low) and math.isfinite(high):
        axes.plot([low, high], [row, row], color=INK, linewidth=1.2, solid_capstyle="butt")
        for edge in (low, high):
            axes.plot([edge, edge], [row - 0.16, row + 0.16], color=INK, linewidth=1.2)
        end = max(end, high)
    rows.sheet.text(rows.x(end, top) + 6, rows.y(row), bar.text, Ink(halo=bool(bar.text)))


def _levels(rows: Rows, axes: Axes, figure: BarFigure, top: float) -> None:
    for value, _ in figure.levels:
        axes.axvline(value, color=INK, linewidth=1.0, linestyle=(0, (5.0, 3.0)), zorder=3)
    places = stacked(
        [rows.x(value, top) for value, _ in figure.levels],
        [text_width(text) for _, text in figure.levels],
        rows.left,
        rows.sheet.figure.get_figwidth() * rows.sheet.figure.dpi - 14,
    )
    for (_, text), (centre, row) in zip(figure.levels, places, strict=True):
        y = rows.first + 8 + LINE * row
        rows.sheet.text(centre, y, text, Ink(colour=QUIET, ha="center", role="level"))
