"""Hierarchical roofline: one marker a kernel and memory level, under the roofs that hold for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.reports.figure_models import RooflineKernel, RooflinePanel, RooflinePoint
from nsight_prof.reports.figure_views import roof_label
from nsight_prof.reports.formats import flop_rate, intensity, share, significant
from nsight_prof.reports.plots.placement import Anchor, Box, Placer, Segment, along, around
from nsight_prof.reports.plots.roofline_axes import RoofLine, plane, roof_lines
from nsight_prof.reports.plots.sheet import (
    MARGIN,
    PT,
    Entry,
    Ink,
    Key,
    Sheet,
    keys_height,
    title_height,
)
from nsight_prof.reports.plots.spots import Spot, told
from nsight_prof.reports.plots.style import (
    GRID,
    INK,
    LINE,
    QUIET,
    WIDTH,
    family,
    font,
    style,
    text_width,
)

LEVELS = {"dram": ("o", "DRAM"), "l2": ("s", "L2"), "l1": ("^", "L1")}
# DRAM is full, the caches paler: where markers meet, the eye still finds the DRAM one.
FILL = {"dram": 0.9, "l2": 0.45, "l1": 0.15}
SOURCES: dict[str, tuple[float, ...]] = {"measured": (), "counters": (), "datasheet": (5.0, 3.0)}
HEIGHT = 500.0
LEFT, RIGHT = 74.0, 16.0
TEXT_HEIGHT = 14.0
AREA = 600.0  # square points of a marker for a kernel with all of the time
LEAST_AREA = 20.0
SUBTITLE = (
    "Each kernel has one height (its throughput) and one marker per memory level, at its FLOPs "
    "over the bytes moved at that level. The nearer to its roof, the less is left to gain."
)


@dataclass(frozen=True)
class _Spot:
    kernel: RooflineKernel
    level: str
    x: float
    y: float
    diameter: float  # points


def plot_roofline(panel: RooflinePanel, subtitle: str = SUBTITLE) -> Figure:
    """Return the roofline of one panel; labels cover neither each other nor a marker.

    Without kernels it shows the roofs alone, with a dot where two of them meet.
    """
    with style():
        return _Roofline(panel, subtitle).draw()


def diameter(share: float | None) -> float:
    """Return the diameter in points of a marker whose area stands for `share`."""
    return math.sqrt(max(AREA * (share or 0.0), LEAST_AREA))


class _Roofline:
    def __init__(self, panel: RooflinePanel, subtitle: str) -> None:
        self.panel = panel
        keys, looks = self._level_keys(), self._family_keys()
        rows = -(-len(panel.kernels) // 2)
        head = title_height(subtitle) + keys_height(keys) + keys_height(looks)
        self.sheet = Sheet(MARGIN + head + HEIGHT + 58 + LINE * rows + MARGIN)
        self.sheet.title(panel.title, subtitle)
        self.sheet.keys(keys)
        self.sheet.keys(looks)
        bottom = self.sheet.top - HEIGHT - 4
        box = Box((LEFT + WIDTH - RIGHT) / 2, bottom + HEIGHT / 2, WIDTH - LEFT - RIGHT, HEIGHT)
        self.plane = plane(panel, box)
        self.placer = Placer(box.grown(-3))

    def draw(self) -> Figure:
        axes = self._axes()
        spots = self._spots()
        lines = roof_lines(self.panel, self.plane)
        for line in lines:
            self._roof(axes, line)
        for kernel in self.panel.kernels:
            self._link(axes, kernel)
        for spot in spots:
            self._mark(axes, spot)
        if not self.panel.kernels:
            self._dot_ridges(axes)
        self._label_roofs(lines)
        self._number(spots)
        self.sheet.top = self.plane.box.extent[1] - 54
        self.sheet.entries([_entry(kernel) for kernel in self.panel.kernels])
        return self.sheet.figure

    def _level_keys(self) -> list[Key]:
        keys = [Key(n, str(1 - 0.5 * FILL[k]), m, 8.0) for k, (m, n) in LEVELS.items()]
        if not self.panel.kernels:
            keys = []
        sizes = [
            Key(f"{text} of GPU time", "white", "o", diameter(value))
            for value, text in ((0.02, "2 %"), (0.1, "10 %"), (0.4, "40 %"))
            if any(kernel.share is not None for kernel in self.panel.kernels)
        ]
        sources = {roof.source for roof in (*self.panel.memory_roofs, *self.panel.compute_roofs)}
        dashed = [Key("roof from datasheet", INK, dashes=SOURCES["datasheet"])]
        return keys + sizes + (dashed if "datasheet" in sources else [])

    def _family_keys(self) -> list[Key]:
        families = dict.fromkeys(family(kernel.category) for kernel in self.panel.kernels)
        return [Key(name, colour) for colour, name in families]

    def _axes(self) -> Axes:
        left, bottom, right, top = self.plane.box.extent
        axes = self.sheet.axes(left, bottom, right - left, top - bottom)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(self.plane.x_min, self.plane.x_max)
        axes.set_ylim(self.plane.y_min, self.plane.y_max)
        _ticks(axes)
        middle = (left + right) / 2
        self.sheet.text(middle, bottom - 38, "Arithmetic intensity at the memory level (FLOP/B)",
                        Ink(ha="center"))  # fmt: skip
        self.sheet.text(MARGIN, (bottom + top) / 2, "Throughput (FLOP/s)", Ink(ha="center",
                        rotation=90))  # fmt: skip
        return axes

    def _spots(self) -> list[_Spot]:
        spots = [
            _Spot(kernel, point.level, *self.plane.pixel(point.intensity, kernel.throughput),
                  diameter(kernel.share))
            for kernel in self.panel.kernels for point in kernel.points
        ]  # fmt: skip
        # Large markers first, so that small ones stay visible on top of them.
        spots.sort(key=lambda spot: (-spot.diameter, FILL[spot.level]))
        for spot in spots:
            side = spot.diameter * PT
            self.placer.taken.append(Box(spot.x, spot.y, side * 0.92, side * 0.92))
        return spots

    def _roof(self, axes: Axes, line: RoofLine) -> None:
        roof = line.roofs[0]
        dashes = SOURCES.get(roof.source, ())
        axes.plot(
            [line.start[0], line.end[0]], [line.start[1], line.end[1]], color=INK, zorder=2,
            linewidth=1.4 if line.sloping else 1.1, linestyle=(0, dashes) if dashes else "-",
        )  # fmt: skip
        self.placer.lines.append(self.plane.segment(line.start, line.end))

    def _link(self, axes: Axes, kernel: RooflineKernel) -> None:
        xs = [point.intensity for point in kernel.points]
        ys = [kernel.throughput] * len(xs)
        axes.plot(xs, ys, color=family(kernel.category)[0], linewidth=0.9, zorder=3, alpha=0.8)
        self.placer.lines.append(self.plane.segment((min(xs), ys[0]), (max(xs), ys[0])))

    def _mark(self, axes: Axes, spot: _Spot) -> None:
        point = next(p for p in spot.kernel.points if p.level == spot.level)
        axes.plot(
            [point.intensity], [spot.kernel.throughput], marker=LEVELS[spot.level][0],
            markersize=spot.diameter, color=family(spot.kernel.category)[0], alpha=0.8,
            markeredgecolor=INK, markeredgewidth=0.6, linestyle="none", zorder=4, clip_on=False,
        )  # fmt: skip
        side = max(spot.diameter * PT, 10.0)
        text = _told(spot.kernel, point)
        self.sheet.spot(Spot(spot.x, spot.y, side, side, text, str(spot.kernel.number), True))

    def _dot_ridges(self, axes: Axes) -> None:
        peaks = {(roof.key, roof.dtype): roof.value for roof in self.panel.compute_roofs}
        for ridge in self.panel.ridges:
            height = peaks.get((ridge.pipe, ridge.dtype))
            if height is None or not self.plane.y_min < height < self.plane.y_max:
                continue
            axes.plot([ridge.intensity], [height], "o", markersize=4.0, color=INK, zorder=4)
            x, y = self.plane.pixel(ridge.intensity, height)
            self.placer.taken.append(Box(x, y, 6, 6))
            names = f"{roof_label(ridge.pipe, ridge.dtype)} and {roof_label(ridge.level, '')}"
            text = told(f"{names} meet", intensity(ridge.intensity), flop_rate(height))
            self.sheet.spot(Spot(x, y, 14, 14, text, round=True))

    def _label_roofs(self, lines: list[RoofLine]) -> None:
        for line in sorted(lines, key=lambda item: not item.sloping):
            segment = self.plane.segment(line.start, line.end)
            width = text_width(line.label)
            prefer = 0.1 if line.sloping else 1.0
            place = self.placer.place(along(segment, width, TEXT_HEIGHT, prefer))
            if place is None:
                middle = segment[0] if line.sloping else segment[1]
                anchor = Anchor(middle[0], middle[1], 2.0)
                place = self.placer.place(around([anchor], width, TEXT_HEIGHT))
            if place is not None:
                self._write(place.box, line.label, place.leader, "roof")

    def _number(self, spots: list[_Spot]) -> None:
        for kernel in self.panel.kernels:
            anchors = [
                Anchor(spot.x, spot.y, spot.diameter * PT / 2, 1.0 * turn)
                for turn, spot in enumerate(s for s in reversed(spots) if s.kernel is kernel)
            ]
            text = str(kernel.number)
            place = self.placer.place(around(anchors, text_width(text, bold=True), 11.0))
            if place is not None:
                self._write(place.box, text, place.leader, "kernel")

    def _write(self, box: Box, text: str, leader: Segment | None, role: str) -> None:
        if leader is not None:
            (x0, y0), (x1, y1) = leader
            self.sheet.line([x0, x1], [y0, y1], color=QUIET, linewidth=0.6, zorder=5)
        bold = role == "kernel"
        self.sheet.text(box.x, box.y, text, Ink(ha="center", rotation=box.angle,
                        bold=bold, halo=True, role=role))  # fmt: skip


def _told(kernel: RooflineKernel, point: RooflinePoint) -> str:
    bound = LABELS.get(kernel.bound_by, "")
    reached = f"{share(point.roof_share)} of what the roofs allow at this intensity"
    return told(
        f"{kernel.number} {kernel.label}",
        flop_rate(kernel.throughput),
        f"{roof_label(point.level, '')}: {intensity(point.intensity)}",
        reached if point.roof_share is not None else "",
        f"bound by {bound}" if bound else "",
        f"{share(kernel.share)} of GPU time" if kernel.share is not None else "",
    )


def _entry(kernel: RooflineKernel) -> Entry:
    return Entry(kernel.number, kernel.label, kernel.share, family(kernel.category)[0])


def _si(value: float, _position: object = None) -> str:
    for step, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= step * 0.999:
            return f"{value / step:g} {prefix}"
    return f"{value:g}"


def _ticks(axes: Axes) -> None:
    for axis, shown in ((axes.xaxis, _plain), (axes.yaxis, _si)):
        low, high = axis.get_view_interval()
        axis.set_major_locator(FixedLocator(_decades(low, high)))
        axis.set_minor_locator(FixedLocator(_minor(low, high)))
        axis.set_major_formatter(FuncFormatter(shown))
        axis.set_minor_formatter(NullFormatter())
        for label in axis.get_ticklabels():
            label.set_fontproperties(font())
    axes.tick_params(which="both", color=QUIET, labelcolor=INK)
    axes.grid(True, which="major", color=GRID, linewidth=0.6)


def _plain(value: float, _position: object = None) -> str:
    return significant(value, 1)


def _decades(low: float, high: float) -> list[float]:
    powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    # At most nine labels fit side by side on the narrow axis.
    stride = max(1, -(-len(powers) // 9))
    return [10.0**power for power in powers if power % stride == 0]


def _minor(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [digit * 10.0**power for power in powers for digit in range(2, 10)]
    return [value for value in every if low <= value <= high]
