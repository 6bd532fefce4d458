"""Lines over one axis, in panels: axes with round ticks, bands, steps, marks, names at the ends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsight_prof.reports.page.charts import LineFigure, Panel, Series, spaced
from nsight_prof.reports.page.formats import significant
from nsight_prof.reports.page.units import BINARY
from nsight_prof.reports.page.values import Words
from nsight_prof.reports.plots.palette import INK, QUIET, SERIES
from nsight_prof.reports.plots.placement import Anchor, Box, Placer, Segment, along, around
from nsight_prof.reports.plots.sheet import MARGIN, MOST, Ink, Key, Spot, headed, tooltip
from nsight_prof.reports.plots.style import LINE, WIDTH, fit, style, text_width
from nsight_prof.reports.plots.ticks import draw_ticks
from nsight_prof.reports.plots.words import labelled, range_of

LOG_ROOM = 1.12  # factor of free room at both ends of a logarithmic axis
LINEAR_ROOM = 0.06


@dataclass(frozen=True)
class Scale:
    """One axis: limits in data units, its ticks, and how far along it a value lies (0 to 1)."""

    low: float
    high: float
    log: bool
    ticks: tuple[float, ...]
    bytes: bool = False

    def fraction(self, value: float) -> float:
        """Return where `value` lies, 0 at the start and 1 at the end of the axis."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def text(self, value: float) -> str:
        """Return the text of a tick."""
        return byte_text(value) if self.bytes else number_text(value)


def scale(
    values: Iterable[float],
    *,
    log: bool,
    zero: bool = False,
    in_bytes: bool = False,
    max_ticks: int = 8,
) -> Scale:
    """Return an axis that holds `values`; on a logarithmic one only those above 0 count."""
    drawable = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    low, high = min(drawable, default=1.0), max(drawable, default=10.0)
    if log:
        low, high = low / LOG_ROOM, high * LOG_ROOM
        ticks = (
            _powers_of_two(low, high, max_ticks + 1) if in_bytes else _decimal(low, high, max_ticks)
        )
        if len(ticks) < 2:  # no scale: values lie near each other
            ticks = _even(low, high, max_ticks, in_bytes)
        return Scale(low, high, True, tuple(ticks), in_bytes)
    if zero:
        low = min(low, 0.0)
    room = (high - low or abs(high) or 1.0) * LINEAR_ROOM
    # An axis of amounts does not begin below 0 for the sake of some room.
    low, high = (max(low - room, 0.0) if low >= 0 else low - room), high + room
    return Scale(low, high, False, tuple(_even(low, high, max_ticks, in_bytes)), in_bytes)


def _powers_of_two(low: float, high: float, max_ticks: int) -> list[float]:
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    stride = max(1, -(-(last - first + 1) // max_ticks))
    return [2.0**power for power in range(first, last + 1) if power % stride == 0]


def _decimal(low: float, high: float, max_ticks: int) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        ticks = [d * 10.0**p for p in powers for d in digits if low <= d * 10.0**p <= high]
        if len(ticks) <= max_ticks:
            return ticks
    stride = -(-len(ticks) // max_ticks)
    return [10.0**p for p in powers if p % stride == 0 and low <= 10.0**p <= high]


def _even(low: float, high: float, max_ticks: int, in_bytes: bool) -> list[float]:
    if in_bytes:
        steps = [2.0**power for power in range(0, 50)]
    else:
        steps = [digit * 10.0**power for power in range(-15, 19) for digit in (1, 2, 2.5, 5)]
    step = next(s for s in steps if (high - low) / s <= max_ticks)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * n for n in range(first, last + 1)]


def byte_text(value: float) -> str:
    """Return bytes with a binary prefix: "48 MiB"."""
    for step, unit in BINARY:
        if abs(value) >= step * 0.9995:
            return f"{value / step:.3g} {unit}"
    return f"{value:.3g} B"


def number_text(value: float) -> str:
    """Return a tick: "0.05", "1,200", "5e-06"."""
    if value == 0:
        return "0"
    text = significant(value, 3)
    digits, e, power = text.partition("e")
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}{e}{power}"


def dress(axes: Axes, x: Scale, y: Scale, *, x_labels: bool = True) -> None:
    """Set limits, ticks, their text and a pale grid."""
    axes.set_xscale("log" if x.log else "linear")
    axes.set_yscale("log" if y.log else "linear")
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    draw_ticks(axes, "x", x.ticks, x.text if x_labels else lambda _: "")
    draw_ticks(axes, "y", y.ticks, y.text)


def stacked(centres: Sequence[float], widths: Sequence[float], low: float, high: float,
            gap: float = 8.0) -> list[tuple[float, int]]:  # fmt: skip
    """Return (centre, row) for texts in a strip from `low` to `high`, none upon another."""
    ends: list[float] = []
    found: dict[int, tuple[float, int]] = {}
    for index in sorted(range(len(centres)), key=lambda i: centres[i]):
        half = widths[index] / 2
        centre = min(max(centres[index], low + half), high - half)
        row = next((r for r, end in enumerate(ends) if centre - half >= end + gap), len(ends))
        ends[row : row + 1] = [centre + half]
        found[index] = (centre, row)
    return [found[index] for index in range(len(centres))]


def spread(wanted: Sequence[float], low: float, high: float, distance: float) -> list[float]:
    """Return places near `wanted`, at least `distance` from each other, within `low` to `high`.

    Where there is no room for all, they are as far apart as the room allows.
    """
    if not wanted:
        return []
    distance = min(distance, (high - low) / max(len(wanted) - 1, 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places: list[float] = []
    for index in order:
        floor = places[-1] + distance if places else low
        places.append(max(wanted[index], floor))
    ceiling = high
    for index in range(len(places) - 1, -1, -1):
        places[index] = min(places[index], ceiling)
        ceiling = places[index] - distance
    found = dict(zip(order, places, strict=True))
    return [found[index] for index in range(len(wanted))]


HEIGHTS = {1: 380.0, 2: 210.0, 3: 150.0}
"""Height of each of so many panels; further ones are as high as three are."""
MANY_TICKS = 210.0
"""Height above which a panel has room for seven ticks."""
LEFT, FOOT, BETWEEN = 86.0, 58.0, 34.0
NAMES = 190.0  # widest column of names at the ends of lines
NEAR_THE_END = 0.2  # part of the x axis within which all lines must end to be named there
MOST_NAMED = 9
POINTS = 60  # lines with more points have no markers, and loose points are smaller
DASHES: tuple[tuple[float, ...], ...] = ((), (5.0, 2.0), (1.5, 1.8), (6.0, 2.0, 1.5, 2.0))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
TEXT_HEIGHT = 13.0
DIGITS = 4


@dataclass(frozen=True)
class _Look:
    colour: str
    dashes: tuple[float, ...]
    marker: str


def plot_lines(figure: LineFigure, width: float = WIDTH) -> Figure:
    """Return the figure, `width` pixels wide; a series without a drawable point is left out."""
    with style():
        return _Lines(figure, width).draw()


class _Lines:
    def __init__(self, figure: LineFigure, width: float) -> None:
        self.figure, self.width = figure, width
        self.panels = [_drawable(panel, figure) for panel in _panels(figure)]
        self.looks = _looks([series for panel in self.panels for series in panel.series])
        xs = [x for panel in self.panels for series in panel.series for x in series.x]
        xs += [x for x, _ in figure.marks if xs]
        self.x = scale(
            xs, log=figure.x_log, in_bytes=figure.x_bytes, max_ticks=8 if width >= WIDTH else 4
        )
        height = HEIGHTS[min(len(self.panels), max(HEIGHTS))]
        ticks = 7 if height > MANY_TICKS else 4
        self.ys = [y_scale(panel, ticks) for panel in self.panels]
        widest = max(text_width(y.text(tick)) for y in self.ys for tick in y.ticks)
        self.left = max(LEFT, MARGIN + 20 + widest + 10)
        self.named = self._names_fit()
        widest = max((text_width(series.label) for series in self.panels[0].series), default=0.0)
        keys = [] if self.named else self._keys()
        self.right = width - MARGIN - (26 + widest if self.named else 0.0)
        mark_rows = max((row for _, row in self._mark_places()), default=-1) + 1
        self.strip = LINE * mark_rows + (4 if figure.marks else 0)
        gaps = (BETWEEN - 8) * (len(self.panels) - 1)
        titles = LINE * sum(1 for panel in self.panels if panel.title)
        body = height * len(self.panels) + gaps + titles + self.strip
        self.sheet = headed(figure.title, figure.subtitle, body + FOOT, keys, width=width)
        self.height = height

    def draw(self) -> Figure:
        top = self.sheet.top - self.strip
        for index, panel in enumerate(self.panels):
            if panel.title:
                self.sheet.text(self.left, top - 8, panel.title, Ink(bold=True))
                top -= LINE
            box = Box((self.left + self.right) / 2, top - self.height / 2,
                      self.right - self.left, self.height)  # fmt: skip
            _PanelDrawing(self, index, box).draw()
            top -= self.height + BETWEEN - 8
        room = self.width - MARGIN / 2 - text_width(self.figure.x_label) / 2
        middle = min((self.left + self.right) / 2, room)
        self.sheet.text(middle, MARGIN + 12, self.figure.x_label, Ink(ha="center"))
        self._write_marks()
        return self.sheet.figure

    def _keys(self) -> list[Key]:
        keys = {}
        for panel in self.panels:
            for series in panel.series:
                look = self.looks[series.label, series.group]
                if series.style == "points":
                    keys[series.label] = Key(series.label, look.colour, look.marker, 6.0)
                else:
                    keys[series.label] = Key(series.label, look.colour, dashes=look.dashes)
        return list(keys.values()) if len(keys) > 1 else []

    def _names_fit(self) -> bool:
        """Whether all lines can be named where they end, at the right of the axes."""
        if (
            self.width < WIDTH
            or len(self.panels) > 1
            or not 1 < len(self.panels[0].series) <= MOST_NAMED
        ):
            return False
        series = self.panels[0].series
        ends = [self.x.fraction(_last(line)[0]) for line in series]
        widest = max(text_width(line.label) for line in series)
        return min(ends) >= max(ends) - NEAR_THE_END and widest <= NAMES

    def _mark_places(self) -> list[tuple[float, int]]:
        wide = [text_width(text) for _, text in self.figure.marks]
        width = self.right - self.left
        centres = [self.left + self.x.fraction(x) * width for x, _ in self.figure.marks]
        return stacked(centres, wide, self.left, self.right)

    def _write_marks(self) -> None:
        for (_, text), (centre, row) in zip(self.figure.marks, self._mark_places(), strict=True):
            y = self.sheet.top - self.strip + 10 + LINE * row
            ink = Ink(colour=QUIET, ha="center", halo=True, role="mark")
            self.sheet.text(centre, y, text, ink)


class _PanelDrawing:
    """One panel on its rectangle of the sheet."""

    def __init__(self, lines: _Lines, index: int, box: Box) -> None:
        self.lines, self.panel, self.box = lines, lines.panels[index], box
        self.y = lines.ys[index]
        self.last = index == len(lines.panels) - 1
        self.placer = Placer(box.grown(-3))

    def draw(self) -> None:
        x0, bottom, _, top = self.box.extent
        sheet = self.lines.sheet
        axes = sheet.axes(x0, bottom, self.box.width, self.box.height)
        dress(axes, self.lines.x, self.y, x_labels=self.last)
        sheet.text(MARGIN + 2, (bottom + top) / 2, fit(self.panel.y_label, self.box.height + 30),
                   Ink(ha="center", rotation=90))  # fmt: skip
        for x, _ in self.lines.figure.marks:
            axes.axvline(x, color=QUIET, linewidth=0.9, linestyle=(0, (2.0, 2.0)), zorder=1)
        for series in self.panel.series:
            self._series(axes, series)
        for series in self.panel.series:
            self._write_texts(series)
        for value, _ in self.panel.levels:
            axes.axhline(value, color=INK, linewidth=1.0, linestyle=(0, (5.0, 3.0)), zorder=2)
        self._write_levels()
        if self.lines.named:
            self._write_names()

    def pixel(self, x: float, y: float) -> tuple[float, float]:
        """Return a point of the data in pixels."""
        x0, bottom, _, _ = self.box.extent
        across, up = self.lines.x.fraction(x), self.y.fraction(y)
        return x0 + across * self.box.width, bottom + up * self.box.height

    def _series(self, axes: Axes, series: Series) -> None:
        look = self.lines.looks[series.label, series.group]
        if series.low is not None and series.high is not None:
            axes.fill_between(series.x, series.low, series.high, color=look.colour, alpha=0.18,
                              linewidth=0, zorder=2)  # fmt: skip
        pattern = "-" if not look.dashes else (0, look.dashes)
        marked = series.style != "steps" and len(series.x) <= POINTS
        axes.plot(
            series.x, series.y, color=look.colour, zorder=3, linewidth=1.6,
            linestyle="none" if series.style == "points" else pattern,
            drawstyle="steps-post" if series.style == "steps" else "default",
            marker=look.marker if marked or series.style == "points" else "",
            markersize=3.0 if len(series.x) > POINTS else 4.0, markeredgewidth=0,
        )  # fmt: skip
        drawn = [self.pixel(x, y) for x, y in _points(series, self.y)]
        self.placer.lines += list(zip(drawn, drawn[1:], strict=False))
        if series.style == "points":
            self.placer.taken += [Box(x, y, 5, 5) for x, y in drawn]
        for n in spaced([n for n, y in enumerate(series.y) if math.isfinite(y)], MOST):
            x, y = self.pixel(series.x[n], series.y[n])
            figure = self.lines.figure
            text = told_point(series, n, self.panel.y_label, figure.x_label, self.lines.x)
            self.lines.sheet.spot(Spot(x, y, 12, 12, text, round=True))

    def _write_texts(self, series: Series) -> None:
        """Write the texts of points beside them, as far as there is room."""
        points = zip(series.texts, series.x, series.y, strict=False)
        drawn = [(text, *self.pixel(x, y)) for text, x, y in points if math.isfinite(y)]
        self.placer.taken += [Box(x, y, 5, 5) for _, x, y in drawn]
        for text, x, y in drawn:
            spot = self.placer.best_of(around([Anchor(x, y, 3)], text_width(text), TEXT_HEIGHT))
            if spot is not None and spot.leader is None:
                ink = Ink(ha="center", halo=True, role="point")
                self.lines.sheet.text(spot.box.x, spot.box.y, text, ink)

    def _write_levels(self) -> None:
        begin, _, end, _ = self.box.extent
        for value, text in self.panel.levels:
            y = self.pixel(self.lines.x.low, value)[1]
            line: Segment = ((begin, y), (end, y))
            self.placer.lines.append(line)
            spot = self.placer.best_of(along(line, text_width(text), TEXT_HEIGHT, 0.02))
            if spot is None:
                continue
            if spot.leader is not None:
                (x0, y0), (x1, y1) = spot.leader
                self.lines.sheet.line([x0, x1], [y0, y1], color=QUIET, linewidth=0.6, zorder=5)
            ink = Ink(ha="center", halo=True, role="level")
            self.lines.sheet.text(spot.box.x, spot.box.y, text, ink)

    def _write_names(self) -> None:
        """Name each line where it ends; names keep apart, a thin line joins the moved ones."""
        _, bottom, right, top = self.box.extent
        ends = [self.pixel(*_last(series)) for series in self.panel.series]
        places = spread([y for _, y in ends], bottom + 6, top - 6, LINE - 2)
        for series, (x, y), spot in zip(self.panel.series, ends, places, strict=True):
            look = self.lines.looks[series.label, series.group]
            start = right + 18
            self.lines.sheet.line([x + 4, start - 3], [y, spot], color=look.colour,
                                  linewidth=0.8, zorder=5)  # fmt: skip
            self.lines.sheet.text(start, spot, series.label, Ink(role="name"))


def told_point(series: Series, n: int, y_label: Words, x_label: Words, x: Scale) -> str:
    """Return what a page tells of point `n` of a line: its name, both values, its band."""
    at = byte_text(series.x[n]) if x.bytes else significant(series.x[n], DIGITS)
    band = ""
    if series.low is not None and series.high is not None:
        low, high = (significant(end[n], DIGITS) for end in (series.low, series.high))
        band = range_of(low, high)
    height = labelled(y_label, significant(series.y[n], DIGITS))
    return tooltip(series.label, height, band, labelled(x_label, at))


def y_scale(panel: Panel, max_ticks: int) -> Scale:
    """Return the y axis of a panel: lines, their bands and levels lie within it."""
    ys = [y for s in panel.series for every in (s.y, s.low or (), s.high or ()) for y in every]
    ys += [y for y, _ in panel.levels]
    return scale(ys, log=panel.y_log, zero=panel.y_zero, max_ticks=max_ticks)


def _panels(figure: LineFigure) -> Sequence[Panel]:
    if figure.panels:
        return figure.panels
    panel = Panel(figure.y_label, figure.series, "", figure.y_log, figure.y_zero, figure.levels)
    return (panel,)


def _drawable(panel: Panel, figure: LineFigure) -> Panel:
    """Return the panel without points that its axes cannot show, and series that have none."""
    drawable = []
    for series in panel.series:
        indices = [i for i, (x, y) in enumerate(zip(series.x, series.y, strict=True))
                 if math.isfinite(x) and (x > 0 or not figure.x_log)
                 and not (panel.y_log and y <= 0)]  # fmt: skip
        if any(math.isfinite(series.y[i]) for i in indices):
            drawable.append(_only(series, indices))
    return Panel(
        panel.y_label, tuple(drawable), panel.title, panel.y_log, panel.y_zero, panel.levels
    )


def _only(series: Series, indices: Sequence[int]) -> Series:
    def pick(values: tuple[float, ...] | None) -> tuple[float, ...] | None:
        return None if values is None else tuple(values[i] for i in indices)

    x, y = pick(series.x) or (), pick(series.y) or ()
    texts = tuple(series.texts[i] for i in indices) if series.texts else ()
    return replace(series, x=x, y=y, low=pick(series.low), high=pick(series.high), texts=texts)


def _points(series: Series, y: Scale) -> list[tuple[float, float]]:
    both = zip(series.x, series.y, strict=True)
    return [(a, b) for a, b in both if math.isfinite(b) and (b > 0 or not y.log)]


def _last(series: Series) -> tuple[float, float]:
    both = zip(series.x, series.y, strict=True)
    return max((a, b) for a, b in both if math.isfinite(b))


def _looks(every: Sequence[Series]) -> dict[tuple[Words, str], _Look]:
    """Return a look for each (label, group); a group shares its colour, dashes tell its lines."""
    colours: dict[tuple[str, Words], int] = {}
    members: dict[tuple[str, Words], list[Words]] = {}
    looks = {}
    for series in every:
        key = series.group, "" if series.group else series.label
        index = colours.setdefault(key, len(colours))
        lines_of_look = members.setdefault(key, [])
        if series.label not in lines_of_look:
            lines_of_look.append(series.label)
        turn = lines_of_look.index(series.label) + index // len(SERIES)
        looks[series.label, series.group] = _Look(
            SERIES[index % len(SERIES)], DASHES[turn % len(DASHES)], MARKERS[index % len(MARKERS)]
        )
    return looks
