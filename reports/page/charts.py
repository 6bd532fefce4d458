"""Frozen models of charts: plain numbers in the unit that their labels name.

reports.plots draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from nsight_prof.reports.page.values import Words

T = TypeVar("T")


def spaced(items: Sequence[T], limit: int) -> list[T]:
    """Return at most `limit` items, spread evenly, the first and the last among them."""
    if len(items) <= limit:
        return list(items)
    return [items[round(n * (len(items) - 1) / (limit - 1))] for n in range(limit)]


@dataclass(frozen=True)
class Roof:
    """One ceiling: a memory level (B/s) or a pipe (FLOP/s), with where its value comes from.

    `key` is dram, l2, l1, fp64, fp32, fp16 or tensor; `dtype` is set for pipes that have several.
    `source` is measured, counters or datasheet.
    """

    key: str
    dtype: str
    label: str
    value: float
    unit: str
    source: str
    clock_hz: float | None
    detail: str


@dataclass(frozen=True)
class Ridge:
    """Where a memory roof meets a compute roof: below `intensity` the memory level limits."""

    level: str
    pipe: str
    dtype: str
    intensity: float


def ridges(memory: Sequence[Roof], compute: Sequence[Roof]) -> tuple[Ridge, ...]:
    """Return the ridge points of all pairs: per compute roof, one per memory level."""
    return tuple(Ridge(m.key, c.key, c.dtype, c.value / m.value) for c in compute for m in memory)


@dataclass(frozen=True)
class RooflinePoint:
    """One kernel at one memory level. `roof_share`: reached over attainable at this intensity."""

    level: str
    intensity: float
    roof_share: float | None


@dataclass(frozen=True)
class RooflineKernel:
    """One kernel on a roofline: the same height (`throughput`, FLOP/s) at each level's intensity.

    `points` are ordered dram, l2, l1 as far as known; `share` (of GPU time) sets the marker area.
    `clock_hz` is the SM clock at which it was counted.
    """

    number: int
    kernel_id: str
    label: str
    category: str
    share: float | None
    throughput: float
    pipe: str
    dtype: str
    bound_by: str
    points: tuple[RooflinePoint, ...]
    clock_hz: float | None = None


@dataclass(frozen=True)
class NotPlotted:
    """A profiled kernel without a point on the roofline, and why."""

    number: int
    label: str
    share: float | None
    reason: str


@dataclass(frozen=True)
class RooflinePanel:
    """One roofline plot: the roofs that apply and the kernels measured against them.

    `key` ("tensor", "vector") names the file. Memory roofs are B/s, compute roofs FLOP/s, each at
    its own clock. `published` are those of the data sheet where measured ones are used.
    """

    key: str
    title: Words
    memory_roofs: tuple[Roof, ...]
    compute_roofs: tuple[Roof, ...]
    ridges: tuple[Ridge, ...]
    kernels: tuple[RooflineKernel, ...]
    published: tuple[Roof, ...] = ()

    @property
    def clock_hz(self) -> float | None:
        """Mean SM clock of the kernels, weighted by their FLOPs; None where not known."""
        known = [
            ((kernel.share or 0.0) * kernel.throughput, kernel.clock_hz)
            for kernel in self.kernels
            if kernel.clock_hz
        ]
        flops = sum(flops_of_kernel for flops_of_kernel, _ in known)
        return (
            sum(flops_of_kernel * clock for flops_of_kernel, clock in known) / flops
            if flops
            else None
        )


@dataclass(frozen=True)
class Series:
    """One line of a figure; `low` and `high` are a band around it.

    A NaN in `y` breaks the line. Series of the same `group` have one colour: the first is drawn
    solid, the next dashed, the third dotted. `texts` stand beside the points, one each, where there
    is room.
    """

    label: Words
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    style: Literal["line", "points", "steps"] = "line"
    group: str = ""
    texts: tuple[Words, ...] = ()


def line(label: Words, points: Iterable[T], *columns: Callable[[T], float], **look: Any) -> Series:
    """Return the line through points: `columns` are x, y and, with a band, its low and high.

    `look` are style, group and texts of the Series.
    """
    rows = [[float(column(point)) for column in columns] for point in points]
    values: Iterator[Any] = zip(*rows, strict=True)
    return Series(label, *values, **look)


@dataclass(frozen=True)
class Panel:
    """One of several axes of a figure, below each other, with the same x axis."""

    y_label: Words
    series: tuple[Series, ...]
    title: Words = ""
    y_log: bool = False
    y_zero: bool = True
    levels: tuple[tuple[float, Words], ...] = ()


@dataclass(frozen=True)
class _Figure:
    """What figures have in common: `name` is that of the file, `alt` stands for the picture.

    The `subtitle` that all have says what to look at.
    """

    name: str
    title: Words
    alt: str


@dataclass(frozen=True)
class LineFigure(_Figure):
    """Lines over one x axis. Labels name the unit; values are in that unit.

    `marks` are vertical lines (x, text), `levels` horizontal ones (y, text). `x_bytes`: x is in
    bytes and its ticks are KiB, MiB, GiB. `y_zero`: a linear y axis starts at 0. With `panels`
    the figure draws them instead of `series`, which is empty then.
    """

    x_label: Words
    y_label: Words = ""
    series: tuple[Series, ...] = ()
    x_log: bool = False
    y_log: bool = False
    marks: tuple[tuple[float, Words], ...] = ()
    levels: tuple[tuple[float, Words], ...] = ()
    x_bytes: bool = False
    y_zero: bool = True
    subtitle: Words = ""
    panels: tuple[Panel, ...] = ()


class Bar(NamedTuple):
    """One horizontal bar: `low` to `high` is its interval, `text` stands at its end.

    Bars of one `group` have one colour and the key names it.
    """

    label: Words
    value: float
    low: float | None = None
    high: float | None = None
    group: str = ""
    text: Words = ""


@dataclass(frozen=True)
class BarFigure(_Figure):
    """Horizontal bars from 0, in the unit of `value_label`; `levels` are vertical lines."""

    value_label: Words
    bars: tuple[Bar, ...]
    levels: tuple[tuple[float, Words], ...] = ()
    subtitle: Words = ""


@dataclass(frozen=True)
class RooflineFigure(_Figure):
    """A roofline of roofs alone: `panel` has no kernels."""

    panel: RooflinePanel
    subtitle: Words = ""


class Stack(NamedTuple):
    """One horizontal bar of stacked `values`, one per group; `text` stands at its end.

    Without values only the text is shown.
    """

    label: Words
    values: tuple[float, ...]
    text: Words = ""


@dataclass(frozen=True)
class StackFigure(_Figure):
    """Times in ns, stacked in horizontal bars; `groups` name the values of each bar."""

    value_label: Words
    groups: tuple[str, ...]
    bars: tuple[Stack, ...]
    subtitle: Words = ""


class Span(NamedTuple):
    """What went on from `begin` to `end` of a time axis; spans of one `group` have one colour.

    `text` stands in the span where there is room for it.
    """

    begin: float
    end: float
    group: str
    text: Words = ""


@dataclass(frozen=True)
class TimelineFigure(_Figure):
    """Panels below each other over one time axis, with what went on as shaded spans behind them.

    The spans stand as a strip of their own above the panels, too. Labels name the unit.
    """

    x_label: Words
    panels: tuple[Panel, ...]
    spans: tuple[Span, ...] = ()
    subtitle: Words = ""


@dataclass(frozen=True)
class HeatRow:
    """One row of a heat map, a value for each column; NaN where there is none."""

    label: Words
    values: tuple[float, ...]


@dataclass(frozen=True)
class HeatFigure(_Figure):
    """Values by row and column, the darker the larger, from zero; labels name the unit.

    `columns` are what a reader points at: the number of each column of the axis `x_label`.
    """

    x_label: Words
    value_label: Words
    columns: tuple[int, ...]
    rows: tuple[HeatRow, ...]
    subtitle: Words = ""


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
    text: Words
    path: str
    group: str


@dataclass(frozen=True)
class IcicleFigure(_Figure):
    """Boxes below each other: each row divides the boxes of the row above it. Times in ns."""

    slices: tuple[Slice, ...]
    subtitle: Words = ""


Chart = (
    HeatFigure
    | LineFigure
    | BarFigure
    | RooflineFigure
    | TimelineFigure
    | StackFigure
    | IcicleFigure
)
