"""Ticks of an axis with their text and a pale grid: one line of each for all ticks.

matplotlib makes five artists for each tick; they took a fifth of the time of a report's pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.markers import TICKDOWN, TICKLEFT

from nsight_prof.reports.plots.palette import GRID, INK, QUIET
from nsight_prof.reports.plots.style import font

PAD = 7.0  # points between the axis and the text of a tick


def draw_ticks(
    axes: Axes,
    along: Literal["x", "y"],
    ticks: Iterable[float],
    text: Callable[[float], str],
    minor: Sequence[float] = (),
) -> None:
    """Draw the ticks within the limits of an axis, which are set; `minor` ones are bare."""
    axis: Axis
    if along == "x":
        axis, marker, transform = axes.xaxis, TICKDOWN, axes.get_xaxis_transform
        position, va, ha = axes.get_xaxis_text1_transform(PAD)
    else:
        axis, marker, transform = axes.yaxis, TICKLEFT, axes.get_yaxis_transform
        position, va, ha = axes.get_yaxis_text1_transform(PAD)
    axis.set_visible(False)
    low, high = sorted(axis.get_view_interval())
    visible = [tick for tick in ticks if low <= tick <= high]

    def line(values: Sequence[float], others: Sequence[float], which: str, **look: object) -> None:
        ends = (values, others) if along == "x" else (others, values)
        axes.add_artist(Line2D(*ends, transform=transform(which), zorder=0.5, **look))  # type: ignore[arg-type]

    def marks(values: Sequence[float], length: float, width: float) -> None:
        line(values, [0.0] * len(values), "tick1", linestyle="none", color=QUIET, marker=marker,
             markersize=length, markeredgewidth=width, clip_on=False)  # fmt: skip

    gap = float("nan")
    line([end for tick in visible for end in (tick, tick, gap)], [0.0, 1.0, gap] * len(visible),
         "grid", color=GRID, linewidth=0.6)  # fmt: skip
    marks(minor, 2.0, 0.6)
    marks(visible, 3.5, 0.8)
    for tick in visible:
        if words := text(tick):
            x, y = (tick, 0.0) if along == "x" else (0.0, tick)
            axes.text(
                x, y, words, fontproperties=font(), color=INK, ha=ha, va=va, transform=position
            )
