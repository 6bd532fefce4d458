"""Plots with one row per kernel: number and name at the left, a drawing, text at the right.

The rows, in pixels from the top, are shared by the time, occupancy, throughput and stall plots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from nsight_prof.reports.page.values import Words
from nsight_prof.reports.plots.palette import QUIET
from nsight_prof.reports.plots.sheet import MARGIN, Ink, Key, Spot, headed
from nsight_prof.reports.plots.style import WIDTH, fit, text_width
from nsight_prof.reports.plots.ticks import draw_ticks

ROW = 24.0
NAMES = 350.0  # widest column of names, in pixels
TICK = 48.0  # pixels that a tick and its label need


@dataclass(frozen=True)
class Head:
    """Title, subtitle, key and (where there is an axis) its label."""

    title: Words
    subtitle: Words
    keys: tuple[Key, ...] = ()
    axis: Words = ""


class Rows:
    """A sheet with one row for each (number, name); `right` pixels are kept free for text."""

    def __init__(
        self, head: Head, names: Sequence[tuple[str, Words]], right: float, gap: float = 0.0
    ) -> None:
        tail = 44.0 if head.axis else 4.0
        body = ROW * len(names) + gap
        self.sheet = headed(head.title, head.subtitle, body + tail, head.keys)
        fitted = [(number, fit(name, NAMES)) for number, name in names]
        self.left = MARGIN + 40 + max((text_width(name) for _, name in fitted), default=0.0)
        self.right = WIDTH - MARGIN - right
        self.first = self.sheet.top - gap
        self.bottom = self.first - ROW * len(names)
        self.axis = head.axis
        for row, (number, name) in enumerate(fitted):
            self.sheet.text(MARGIN + 22, self.y(row), number, Ink(bold=True, ha="right"))
            self.sheet.text(MARGIN + 30, self.y(row), name)

    def y(self, row: int) -> float:
        """Return the middle of a row in pixels."""
        return self.first - ROW * (row + 0.5)

    def axes(self, top_value: float, unit: str) -> Axes:
        """Return axes from 0 to `top_value` across the strip, one unit of y a row, downwards."""
        count = (self.first - self.bottom) / ROW
        axes = self.sheet.axes(
            self.left, self.bottom, self.right - self.left, self.first - self.bottom
        )
        axes.set_xlim(0, top_value)
        axes.set_ylim(count - 0.5, -0.5)
        axes.yaxis.set_visible(False)
        axes.spines["left"].set_color(QUIET)
        ticks = steps(top_value, int((self.right - self.left) // TICK))
        draw_ticks(axes, "x", ticks, lambda value: f"{value:.6g} {unit}".rstrip())
        middle = (self.left + self.right) / 2
        self.sheet.text(middle, self.bottom - 34, self.axis, Ink(ha="center"))
        return axes

    def x(self, value: float, top_value: float) -> float:
        """Return the pixel of a value on such axes."""
        return self.left + (self.right - self.left) * value / top_value

    def spot(
        self, row: int, text: str, kernel: str = "", box: tuple[float, float] | None = None
    ) -> None:
        """Say what a page tells of a row, or of its part from one pixel to another (`box`)."""
        x0, right = box or (MARGIN, WIDTH - MARGIN)
        middle, width = (x0 + right) / 2, max(right - x0, 3.0)
        self.sheet.spot(Spot(middle, self.y(row), width, ROW - 2, text, kernel))


def draw_bar(axes: Axes, row: int, width: float, thick: float, x: float = 0.0, **look: Any) -> None:
    """Draw a bar of a row; `Axes.barh`, which fits limits to each anew, takes ten times as long."""
    axes.add_artist(Rectangle((x, row - thick / 2), width, thick, **look))


def steps(top_value: float, max_steps: int = 6) -> list[float]:
    """Return round ticks from 0 to `top_value`, at most `max_steps` apart from the 0."""
    power = 10.0**-12
    while True:
        for digit in (1, 2, 2.5, 5):
            step = power * digit
            if top_value / step <= max(min(max_steps, 6), 1):
                return [step * i for i in range(int(top_value / step + 1e-9) + 1)]
        power *= 10
