"""A heat map: values by row and column."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from nsight_prof.reports.page.charts import HeatFigure, spaced
from nsight_prof.reports.page.formats import significant
from nsight_prof.reports.plots.palette import BLUE, GRID
from nsight_prof.reports.plots.sheet import MARGIN, MOST, Ink, Spot, headed, tooltip
from nsight_prof.reports.plots.style import WIDTH, fit, style, text_width
from nsight_prof.reports.plots.words import labelled, say

TALL, LOW = 18.0, 6.0
LABELLED = 32
"""Rows up to which each is tall enough for its label; of more, some have one."""
FOOT, LABEL, SCALE = 50.0, 130.0, 12.0
MOST_TICKS = 10
DIGITS = 3


def plot_heat(figure: HeatFigure) -> Figure:
    """Return the heat map; white is zero, the darkest shade the largest value."""
    with style():
        return _Heat(figure).draw()


class _Heat:
    def __init__(self, figure: HeatFigure) -> None:
        self.figure = figure
        rows, columns = len(figure.rows), len(figure.columns)
        self.row = TALL if rows <= LABELLED else LOW
        known = [v for row in figure.rows for v in row.values if math.isfinite(v)]
        self.most = max(known, default=0.0) or 1.0
        self.left = MARGIN + max(min(text_width(r.label), LABEL) for r in figure.rows) + 8
        self.width = WIDTH - MARGIN - 8 - self.left
        self.column = self.width / columns
        self.bottom = MARGIN + FOOT
        body = FOOT + self.row * rows + SCALE + 10
        self.sheet = headed(figure.title, figure.subtitle, body)

    def draw(self) -> Figure:
        self._scale()
        for number, row in enumerate(self.figure.rows):
            for at, value in enumerate(row.values):
                self._cell(number, at, value)
        self._labels()
        for number in range(len(self.figure.rows)):
            self._spots(number)
        return self.sheet.figure

    def _cell(self, row: int, at: int, value: float) -> None:
        known = math.isfinite(value)
        self.sheet.box(self.left + at * self.column, self._y(row) - self.row / 2, self.column,
                       self.row, linewidth=0, facecolor=BLUE if known else GRID,
                       alpha=value / self.most if known else 1.0)  # fmt: skip

    def _scale(self) -> None:
        """Draw the shades from zero to the largest value above the map."""
        y, wide = self.sheet.top - SCALE, 120.0
        steps = 24
        first = labelled(self.figure.value_label, "0")
        x = MARGIN + text_width(first) + 8
        self.sheet.text(MARGIN, y + SCALE / 2, first)
        for step in range(steps):
            self.sheet.box(x + step * wide / steps, y, wide / steps, SCALE, linewidth=0,
                           facecolor=BLUE, alpha=(step + 0.5) / steps)  # fmt: skip
        self.sheet.text(x + wide + 6, y + SCALE / 2, significant(self.most, DIGITS))

    def _labels(self) -> None:
        rows, columns = self.figure.rows, self.figure.columns
        every = max(1, math.ceil(TALL / self.row))
        for number in range(0, len(rows), every):
            text = fit(rows[number].label, LABEL)
            self.sheet.text(self.left - 6, self._y(number), text, Ink(ha="right"))
        for at in spaced(range(len(columns)), MOST_TICKS):
            x = self.left + (at + 0.5) * self.column
            self.sheet.text(x, self.bottom - 12, str(columns[at]), Ink(ha="center"))
        middle = self.left + self.width / 2
        self.sheet.text(middle, MARGIN + 10, self.figure.x_label, Ink(ha="center"))

    def _y(self, row: int) -> float:
        return self.bottom + self.row * (len(self.figure.rows) - row - 0.5)

    def _spots(self, row: int) -> None:
        label, values = self.figure.rows[row].label, self.figure.rows[row].values
        for at in spaced(range(len(values)), max(8, MOST // len(self.figure.rows))):
            value = significant(values[at], DIGITS) if math.isfinite(values[at]) else "n/a"
            words = tooltip(
                f"{say(label)}, {say(self.figure.x_label)} {self.figure.columns[at]}",
                labelled(self.figure.value_label, value),
            )
            x = self.left + (at + 0.5) * self.column
            self.sheet.spot(Spot(x, self._y(row), max(self.column, 4.0), self.row, words))
