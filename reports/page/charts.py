"""Frozen models of charts: plain numbers in the unit that their labels name.

reports.plots draws them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from nsight_prof.reports.page.figure_models import RooflinePanel


@dataclass(frozen=True)
class Series:
    """One line of a figure; `low` and `high` are a band around it.

    A NaN in `y` breaks the line. Series of the same `group` have one colour: the first is drawn
    solid, the next dashed, the third dotted. `texts` stand beside the points, one each, where there
    is room.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    style: Literal["line", "points", "steps"] = "line"
    group: str = ""
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    """One of several axes of a figure, below each other, with the same x axis."""

    y_label: str
    series: tuple[Series, ...]
    title: str = ""
    y_log: bool = False
    y_zero: bool = True
    levels: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class LineFigure:
    """Lines over one x axis. Labels name the unit; values are in that unit.

    `marks` are vertical lines (x, text), `levels` horizontal ones (y, text). `x_bytes`: x is in
    bytes and its ticks are KiB, MiB, GiB. `y_zero`: a linear y axis starts at 0. With `panels`
    the figure draws them instead of `series`, which is empty then. `subtitle` says under the
    title what to look at.
    """

    name: str
    title: str
    alt: str
    x_label: str
    y_label: str = ""
    series: tuple[Series, ...] = ()
    x_log: bool = False
    y_log: bool = False
    marks: tuple[tuple[float, str], ...] = ()
    levels: tuple[tuple[float, str], ...] = ()
    x_bytes: bool = False
    y_zero: bool = True
    subtitle: str = ""
    panels: tuple[Panel, ...] = ()


class Bar(NamedTuple):
    """One horizontal bar: `low` to `high` is its interval, `text` stands at its end.

    Bars of one `group` have one colour and the key names it.
    """

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    group: str = ""
    text: str = ""


@dataclass(frozen=True)
class BarFigure:
    """Horizontal bars from 0, in the unit of `value_label`; `levels` are vertical lines."""

    name: str
    title: str
    alt: str
    value_label: str
    bars: tuple[Bar, ...]
    levels: tuple[tuple[float, str], ...] = ()
    subtitle: str = ""


@dataclass(frozen=True)
class RooflineFigure:
    """A roofline of roofs alone: `panel` has no kernels."""

    name: str
    title: str
    alt: str
    panel: RooflinePanel
    subtitle: str = ""


class Stack(NamedTuple):
    """One horizontal bar of stacked `values`, one per group; `text` stands at its end.

    Without values only the text is shown.
    """

    label: str
    values: tuple[float, ...]
    text: str = ""


@dataclass(frozen=True)
class StackFigure:
    """Times in ns, stacked in horizontal bars; `groups` name the values of each bar."""

    name: str
    title: str
    alt: str
    value_label: str
    groups: tuple[str, ...]
    bars: tuple[Stack, ...]
    subtitle: str = ""


class Span(NamedTuple):
    """What went on from `begin` to `end` of a time axis; spans of one `group` have one colour.

    `text` stands in the span where there is room for it.
    """

    begin: float
    end: float
    group: str
    text: str = ""


@dataclass(frozen=True)
class TimelineFigure:
    """Panels below each other over one time axis, with what went on as shaded spans behind them.

    The spans stand as a strip of their own above the panels, too. Labels name the unit.
    """

    name: str
    title: str
    alt: str
    x_label: str
    panels: tuple[Panel, ...]
    spans: tuple[Span, ...] = ()
    subtitle: str = ""


@dataclass(frozen=True)
class HeatRow:
    """One row of a heat map, a value for each column; NaN where there is none."""

    label: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class HeatFigure:
    """Values by row and column, the darker the larger, from zero; labels name the unit.

    `columns` are what a reader points at: the number of each column of the axis `x_label`.
    """

    name: str
    title: str
    alt: str
    x_label: str
    value_label: str
    columns: tuple[int, ...]
    rows: tuple[HeatRow, ...]
    subtitle: str = ""


class Slice(NamedTuple):
    """One box of an icicle: a part of the box above it.

    Attributes:
        depth: its row, from 0 at the top.
        begin: where it begins, in ns of the sum of all boxes of the first row.
        value: its width in ns.
        text: stands in it where there is room.
        path: the boxes that it is in and itself, outermost first.
        group: boxes of one group have one colour.
    """

    depth: int
    begin: float
    value: float
    text: str
    path: str
    group: str


@dataclass(frozen=True)
class IcicleFigure:
    """Boxes below each other: each row divides the boxes of the row above it. Times in ns."""

    name: str
    title: str
    alt: str
    slices: tuple[Slice, ...]
    subtitle: str = ""


Chart = (
    HeatFigure
    | LineFigure
    | BarFigure
    | RooflineFigure
    | TimelineFigure
    | StackFigure
    | IcicleFigure
)
