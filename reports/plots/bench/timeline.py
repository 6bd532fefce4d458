"""Several quantities over one time axis, with what went on meanwhile as shaded spans."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsight_prof.reports.page.charts import Panel, Series, TimelineFigure, spaced
from nsight_prof.reports.page.formats import significant
from nsight_prof.reports.page.values import Text, Words
from nsight_prof.reports.plots.bench.lines import DASHES, Scale, dress, scale, told_point, y_scale
from nsight_prof.reports.plots.palette import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    QUIET,
    SKY,
    STAGES,
    VERMILLION,
    YELLOW,
)
from nsight_prof.reports.plots.sheet import MARGIN, MOST, Ink, Key, Spot, headed, tooltip
from nsight_prof.reports.plots.style import WIDTH, style, text_width
from nsight_prof.reports.plots.words import labelled, range_of, say

PANEL, HEAD, FOOT = 82.0, 24.0, 50.0
STRIP, BELOW_STRIP = 16.0, 6.0
LEFT = 74.0
PALE, STRONG = 0.12, 0.55
ROOM = 6.0  # pixels that a text in the strip needs besides its own width
MOST_TICKS = 12
DIGITS = 4
LINES = (BLUE, VERMILLION, INK)
SPANS = (GREY, YELLOW, GREEN, SKY, ORANGE, PURPLE)
Look = tuple[str, tuple[float, ...]]
"""Colour and dashes of a line."""


def plot_timeline(figure: TimelineFigure) -> Figure:
    """Return the figure; a panel without one drawable point is left out."""
    with style():
        return _Timeline(figure).draw()


class _Timeline:
    def __init__(self, figure: TimelineFigure) -> None:
        self.figure = figure
        self.panels = [p for p in figure.panels if any(map(_drawable, p.series))]
        series = [line for panel in self.panels for line in panel.series if _drawable(line)]
        groups = dict.fromkeys(span.group for span in figure.spans)
        self.colours = {
            group: STAGES.get(group) or SPANS[n % len(SPANS)] for n, group in enumerate(groups)
        }
        self.looks = _looks(self.panels)
        xs = [x for line in series for x in line.x]
        xs += [x for span in figure.spans for x in (span.begin, span.end)]
        self.x = _exact(xs)
        keys = [Key(group, colour) for group, colour in self.colours.items()]
        keys += [Key(name, colour, dashes=dash) for name, (colour, dash) in self.looks.items()]
        strip = STRIP + BELOW_STRIP if figure.spans else 0.0
        body = strip + (PANEL + HEAD) * len(self.panels) + FOOT
        self.sheet = headed(figure.title, figure.subtitle, body, keys)
        self.right = WIDTH - MARGIN - 8

    def draw(self) -> Figure:
        top = self.sheet.top
        if self.figure.spans:
            self._strip(top - STRIP)
            top -= STRIP + BELOW_STRIP
        for index, panel in enumerate(self.panels):
            self._head(panel, top - HEAD / 2 - 2)
            bottom = top - HEAD - PANEL
            self._panel(panel, bottom, last=index == len(self.panels) - 1)
            top = bottom
        middle = (LEFT + self.right) / 2
        self.sheet.text(middle, MARGIN + 10, self.figure.x_label, Ink(ha="center"))
        return self.sheet.figure

    def pixel(self, x: float) -> float:
        """Return where a time lies, in pixels from the left."""
        return LEFT + self.x.fraction(x) * (self.right - LEFT)

    def _strip(self, bottom: float) -> None:
        for span in self.figure.spans:
            x0, right = self.pixel(span.begin), self.pixel(span.end)
            self.sheet.box(x0, bottom, max(right - x0, 0.5), STRIP, linewidth=0.4,
                           facecolor=self.colours[span.group], edgecolor="white",
                           alpha=STRONG)  # fmt: skip
            ends = (significant(end, DIGITS) for end in (span.begin, span.end))
            when = labelled(self.figure.x_label, range_of(*ends))
            words = tooltip(f"{span.group} {span.text}", when)
            middle, width = (x0 + right) / 2, max(right - x0, 3.0)
            self.sheet.spot(Spot(middle, bottom + STRIP / 2, width, STRIP, words))
            if span.text and text_width(span.text) + ROOM <= right - x0:
                ink = Ink(ha="center", role="span")
                self.sheet.text((x0 + right) / 2, bottom + STRIP / 2, span.text, ink)

    def _head(self, panel: Panel, y: float) -> None:
        """Write what the panel shows, and what its level is at the right."""
        self.sheet.text(LEFT, y, panel.y_label, Ink(bold=True))
        if panel.levels:
            levels = [say(text) for _, text in panel.levels]
            words = say(Text("dashed: {levels}", levels=levels))
            self.sheet.text(self.right, y, words, Ink(colour=QUIET, ha="right", role="level"))

    def _panel(self, panel: Panel, bottom: float, last: bool) -> None:
        y = y_scale(panel, max_ticks=4)
        axes = self.sheet.axes(LEFT, bottom, self.right - LEFT, PANEL)
        dress(axes, self.x, y, x_labels=last)
        for span in self.figure.spans:
            colour = self.colours[span.group]
            axes.axvspan(span.begin, span.end, color=colour, alpha=PALE, linewidth=0, zorder=0)
        for series in panel.series:
            if _drawable(series):
                self._line(axes, series, self.looks.get(series.label, (BLUE, ())))
                self._points(panel, series, y, bottom)
        for value, _ in panel.levels:
            axes.axhline(value, color=INK, linewidth=0.9, linestyle=(0, (5.0, 3.0)), zorder=2)

    def _points(self, panel: Panel, series: Series, y: Scale, bottom: float) -> None:
        indices = [n for n, v in enumerate(series.y) if math.isfinite(v) and (v > 0 or not y.log)]
        for n in spaced(indices, MOST):
            text = told_point(series, n, panel.y_label, self.figure.x_label, self.x)
            height = bottom + y.fraction(series.y[n]) * PANEL
            self.sheet.spot(Spot(self.pixel(series.x[n]), height, 8, 8, text, round=True))

    def _line(self, axes: Axes, series: Series, look: Look) -> None:
        colour, dashes = look
        if series.low is not None and series.high is not None:
            axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.25,
                              linewidth=0, zorder=2)  # fmt: skip
        axes.plot(series.x, series.y, color=colour, linewidth=1.2, zorder=3,
                  linestyle="none" if series.style == "points" else (0, dashes) if dashes else "-",
                  drawstyle="steps-post" if series.style == "steps" else "default",
                  marker="o" if series.style == "points" else "", markersize=2.5)  # fmt: skip


def _drawable(series: Series) -> bool:
    return any(math.isfinite(y) for y in series.y)


def _exact(xs: list[float]) -> Scale:
    """Return an axis from the first moment to the last, without room at the ends."""
    known = [x for x in xs if math.isfinite(x)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    high = high if high > low else low + 1.0
    ticks = scale([low, high], log=False, max_ticks=MOST_TICKS).ticks
    return Scale(low, high, False, tuple(t for t in ticks if low <= t <= high))


def _looks(panels: list[Panel]) -> dict[Words, Look]:
    """Return how each line is drawn that shares a panel with others; one alone needs no key."""
    shared = [p for p in panels if sum(map(_drawable, p.series)) > 1]
    labels = dict.fromkeys(line.label for p in shared for line in p.series if _drawable(line))
    return {
        label: (LINES[n % len(LINES)], DASHES[n // len(LINES) % len(DASHES)])
        for n, label in enumerate(labels)
    }
