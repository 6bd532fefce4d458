"""An icicle: what a time consists of, row by row, from stages down to operators."""

from __future__ import annotations

from matplotlib.figure import Figure

from nsight_prof.reports.page.charts import IcicleFigure
from nsight_prof.reports.page.formats import duration, percent
from nsight_prof.reports.page.values import Words
from nsight_prof.reports.plots.palette import INK, SERIES, text_on
from nsight_prof.reports.plots.sheet import MARGIN, Ink, Key, Spot, headed, tooltip
from nsight_prof.reports.plots.style import WIDTH, fit, style, text_width
from nsight_prof.reports.plots.words import say

ROW = 24.0
ROOM = 10.0
"""Pixels that a text needs besides its own width."""
LEAST = 60.0
"""Pixels from which a box has a text that is cut, where neither the whole nor its end fits."""


def plot_icicle(figure: IcicleFigure) -> Figure:
    """Return the figure; the first groups have a colour each, later ones begin again."""
    with style():
        groups = list(dict.fromkeys(box.group for box in figure.slices))
        colours = {group: SERIES[n % len(SERIES)] for n, group in enumerate(groups)}
        keys = [Key(fit(group, 380), colour) for group, colour in colours.items()]
        rows = 1 + max(box.depth for box in figure.slices)
        sheet = headed(figure.title, figure.subtitle, ROW * rows, keys)
        total = sum(box.value for box in figure.slices if box.depth == 0)
        scale = (WIDTH - 2 * MARGIN) / total
        for box in figure.slices:
            x, width = MARGIN + box.begin * scale, box.value * scale
            bottom = sheet.top - ROW * (box.depth + 1)
            colour = colours[box.group]
            sheet.box(x, bottom, width, ROW, facecolor=colour, edgecolor="white", linewidth=0.8,
                      alpha=1.0 if box.depth == 0 else 0.55)  # fmt: skip
            words = tooltip(box.path, f"{duration(box.value)}, {percent(100 * box.value / total)}")
            sheet.spot(Spot(x + width / 2, bottom + ROW / 2, max(width, 3.0), ROW, words))
            if text := _label(box.text, width - ROOM):
                ink = Ink(colour=INK if box.depth else text_on(colour), ha="center")
                sheet.text(x + width / 2, bottom + ROW / 2, text, ink)
        return sheet.figure


def _label(words: Words, room: float) -> str:
    """Return a name as it fits: whole, without file or namespace, or cut; empty without room."""
    text = say(words)
    last = text.rpartition("::" if "::" in text else " ")[2]
    fitting = next((name for name in (text, last) if text_width(name) <= room), "")
    return fitting or (fit(last, room) if room >= LEAST else "")
