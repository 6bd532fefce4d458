"""Hierarchical roofline: one marker per kernel and memory level, under its roofs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.build.roofline import roof_label
from nsight_prof.reports.page.charts import (
    Roof,
    RooflineKernel,
    RooflinePanel,
    RooflinePoint,
)
from nsight_prof.reports.page.formats import clock, flop_rate, intensity, share, significant
from nsight_prof.reports.page.units import SI
from nsight_prof.reports.page.values import Text, Verbatim, Word, Words
from nsight_prof.reports.plots.palette import INK, LEVEL_COLOURS, QUIET, family
from nsight_prof.reports.plots.placement import Anchor, Box, Placer, Segment, along, around
from nsight_prof.reports.plots.roofline.axes import RoofLine, at_clock, plane, roof_lines
from nsight_prof.reports.plots.sheet import MARGIN, PT, Entry, Ink, Key, Spot, headed, tooltip
from nsight_prof.reports.plots.style import LINE, WIDTH, style, text_width
from nsight_prof.reports.plots.ticks import draw_ticks
from nsight_prof.reports.plots.words import labelled, of_gpu_time, say

LEVELS = {"dram": ("o", "DRAM"), "l2": ("s", "L2"), "l1": ("^", "L1")}
BEHIND = {"dram": 2, "l2": 1, "l1": 0}  # where markers meet, the eye still finds the DRAM one
SOURCES: dict[str, tuple[float, ...]] = {"measured": (), "counters": (), "datasheet": (5.0, 3.0)}
HEIGHT = 500.0
LEFT, RIGHT = 74.0, 24.0
TEXT_HEIGHT = 14.0
AREA = 600.0  # square points of a marker for a kernel with all of the time
LEAST_AREA = 26.0
NUMBERED, SMALL = 14, 0.01
"""Kernels that get a number; those beyond with less than SMALL of the GPU time get none."""
SUBTITLE = Text(
    "One line per kernel: its height is its throughput, its markers stand at the FLOPs per byte "
    "moved at each memory level. Compare a marker with the roof of its colour."
)


@dataclass(frozen=True)
class _Spot:
    kernel: RooflineKernel
    level: str
    x: float
    y: float
    diameter: float  # points


def plot_roofline(panel: RooflinePanel, subtitle: Words = SUBTITLE) -> Figure:
    """Return the roofline of one panel; labels cover neither each other nor a marker.

    Without kernels it shows the roofs alone, with a dot where two of them meet.
    """
    with style():
        return _Roofline(panel, subtitle).draw()


def diameter(share: float | None) -> float:
    """Return the diameter in points of a marker whose area stands for `share`."""
    return math.sqrt(max(AREA * (share or 0.0), LEAST_AREA))


class _Roofline:
    def __init__(self, panel: RooflinePanel, subtitle: Words) -> None:
        self.clock_hz = panel.clock_hz
        self.panel = panel = at_clock(panel, self.clock_hz)
        self.highest = max(panel.compute_roofs, key=lambda roof: roof.value, default=None)
        ranked = sorted(panel.kernels, key=lambda kernel: -(kernel.share or 0.0))
        small = {k.number for k in ranked[NUMBERED:] if (k.share or 0.0) < SMALL}
        self.named = tuple(k for k in panel.kernels if k.number not in small)
        self.small = tuple(k for k in panel.kernels if k.number in small)
        keys, looks = self._level_keys(), self._family_keys()
        rows = -(-len(self.named) // 2)
        if self.clock_hz is not None and subtitle:
            at = Text(
                "Roofs at {clock}, the SM clock of these kernels.", clock=clock(self.clock_hz)
            )
            subtitle = Text("{what} {at}", what=Verbatim(say(subtitle)), at=at)
        self.sheet = headed(panel.title, subtitle, HEIGHT + 58 + LINE * rows, keys, looks)
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
        for kernel in self.named:
            self._link(axes, kernel)
        for spot in spots:
            self._mark(axes, spot)
        self._zones(axes)
        self._ridges(axes)
        self._label_roofs(lines)
        self._number(spots)
        self.sheet.top = self.plane.box.extent[1] - 54
        self.sheet.entries(
            [Entry(k.number, k.label, k.share, family(k.category)[0]) for k in self.named]
        )
        return self.sheet.figure

    def _level_keys(self) -> list[Key]:
        keys = [Key(name, LEVEL_COLOURS[k], mark, 8.0) for k, (mark, name) in LEVELS.items()]
        if not self.panel.kernels:
            keys = []
        sizes = [
            Key(of_gpu_time(value), "white", "o", diameter(value))
            for value in (0.02, 0.1, 0.4)
            if any(kernel.share is not None for kernel in self.panel.kernels)
        ]
        ridges = [Key("ridge point", "white", "D", 5.0)] if self.panel.ridges else []
        every = (*self.panel.memory_roofs, *self.panel.compute_roofs, *self.panel.published)
        dashed = [Key("data sheet", QUIET, dashes=SOURCES["datasheet"])]
        return keys + sizes + ridges + dashed * ("datasheet" in {roof.source for roof in every})

    def _family_keys(self) -> list[Key]:
        families = dict.fromkeys(family(kernel.category) for kernel in self.named)
        keys = [Key(name, colour, dashes=()) for colour, name in families]
        if self.small:
            together = sum(kernel.share or 0.0 for kernel in self.small)
            text = say(Text("{n} smaller kernel, {share} of GPU time",
                            "{n} smaller kernels, {share} of GPU time together",
                            n=len(self.small), share=share(together)))  # fmt: skip
            keys.append(Key(text, "white", "o", diameter(0.0)))
        return keys

    def _axes(self) -> Axes:
        x0, bottom, right, top = self.plane.box.extent
        axes = self.sheet.axes(x0, bottom, right - x0, top - bottom)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(self.plane.x_min, self.plane.x_max)
        axes.set_ylim(self.plane.y_min, self.plane.y_max)
        p = self.plane
        draw_ticks(
            axes,
            "x",
            _decades(p.x_min, p.x_max),
            lambda value: significant(value, 1),
            _minor(p.x_min, p.x_max),
        )
        draw_ticks(axes, "y", _decades(p.y_min, p.y_max), _si, _minor(p.y_min, p.y_max))
        middle = (x0 + right) / 2
        across = say(Text("Arithmetic intensity at the memory level (FLOP/B)"))
        up = say(Text("Throughput (FLOP/s)"))
        self.sheet.text(middle, bottom - 38, across, Ink(ha="center"))
        self.sheet.text(MARGIN, (bottom + top) / 2, up, Ink(ha="center", rotation=90))
        return axes

    def _spots(self) -> list[_Spot]:
        spots = [
            _Spot(kernel, point.level, *self.plane.pixel(point.intensity, kernel.throughput),
                  diameter(kernel.share))
            for kernel in self.panel.kernels for point in kernel.points
        ]  # fmt: skip
        # Large markers first, so that small ones stay visible on top of them.
        spots.sort(key=lambda spot: (-spot.diameter, BEHIND[spot.level]))
        for spot in spots:
            side = spot.diameter * PT
            self.placer.taken.append(Box(spot.x, spot.y, side * 0.92, side * 0.92))
        return spots

    def _roof(self, axes: Axes, line: RoofLine) -> None:
        roof = line.roofs[0]
        dashes = SOURCES.get(roof.source, ())
        axes.plot(
            [line.start[0], line.end[0]], [line.start[1], line.end[1]], color=_roof_colour(roof),
            zorder=2, linewidth=0.9 if dashes else 1.6, linestyle=(0, dashes) if dashes else "-",
        )  # fmt: skip
        self.placer.lines.append(self.plane.segment(line.start, line.end))

    def _link(self, axes: Axes, kernel: RooflineKernel) -> None:
        xs = [point.intensity for point in kernel.points]
        ys = [kernel.throughput] * len(xs)
        axes.plot(xs, ys, color=family(kernel.category)[0], linewidth=2.2, zorder=3, alpha=0.8)
        self.placer.lines.append(self.plane.segment((min(xs), ys[0]), (max(xs), ys[0])))

    def _mark(self, axes: Axes, spot: _Spot) -> None:
        point = next(p for p in spot.kernel.points if p.level == spot.level)
        colour = LEVEL_COLOURS[spot.level]
        axes.plot(
            [point.intensity], [spot.kernel.throughput], marker=LEVELS[spot.level][0],
            markersize=spot.diameter, alpha=0.85, linestyle="none", zorder=4, clip_on=False,
            color="white" if spot.kernel in self.small else colour,
            markeredgecolor=colour if spot.kernel in self.small else "white", markeredgewidth=0.5,
        )  # fmt: skip
        side = max(spot.diameter * PT, 10.0)
        text = _tooltip(spot.kernel, point)
        self.sheet.spot(Spot(spot.x, spot.y, side, side, text, str(spot.kernel.number), True))

    def _zones(self, axes: Axes) -> None:
        """Shade what the bandwidth of DRAM limits: left of its ridge point with the highest roof.

        Other levels and pipes have ridge points of their own.
        """
        peak = self.highest and ("dram", self.highest.key, self.highest.dtype)
        ridge = next((r for r in self.panel.ridges if (r.level, r.pipe, r.dtype) == peak), None)
        if ridge is None or not self.plane.x_min < ridge.intensity < self.plane.x_max:
            return
        dram = LEVEL_COLOURS["dram"]
        axes.axvspan(self.plane.x_min, ridge.intensity, color=dram, alpha=0.05, lw=0, zorder=0)
        x, y = self.plane.pixel(ridge.intensity, self.plane.y_min)
        x0, right = self.plane.box.extent[0], self.plane.box.extent[2]
        for text, room, turn in (
            (say(Text("memory-bound (DRAM)")), x - x0, -1),
            (say(Text("compute-bound")), right - x, 1),
        ):
            width = text_width(text)
            if width + 16 < room:
                box = Box(x + turn * (8 + width / 2), y + 12, width, TEXT_HEIGHT)
                self.placer.taken.append(box)
                self.sheet.text(box.x, box.y, text, Ink(ha="center", colour=QUIET))

    def _ridges(self, axes: Axes) -> None:
        """Mark where memory roofs meet compute roofs; those of the highest say their intensity."""
        peaks = {(roof.key, roof.dtype): roof for roof in self.panel.compute_roofs}
        for ridge in self.panel.ridges:
            peak = peaks.get((ridge.pipe, ridge.dtype))
            if peak is None or not self.plane.y_min < peak.value < self.plane.y_max:
                continue
            colour = LEVEL_COLOURS.get(ridge.level, INK)
            axes.plot([ridge.intensity], [peak.value], "D", markersize=4.5, color="white", zorder=4,
                      markeredgecolor=colour, markeredgewidth=1.2)  # fmt: skip
            x, y = self.plane.pixel(ridge.intensity, peak.value)
            self.placer.taken.append(Box(x, y, 8, 8))
            if peak is self.highest and self.panel.kernels:
                text = f"{significant(ridge.intensity, 2)} FLOP/B"
                spot = self.placer.best_of(around([Anchor(x, y + 4, 3)], text_width(text), 11.0))
                if spot is not None:
                    self._write(spot.box, text, spot.leader, "ridge", colour)
            pipe, level = roof_label(ridge.pipe, ridge.dtype), roof_label(ridge.level)
            text = tooltip(
                say(Text("{pipe} and {level} meet", pipe=pipe, level=level)),
                intensity(ridge.intensity),
                flop_rate(peak.value),
            )
            self.sheet.spot(Spot(x, y, 14, 14, text, round=True))

    def _label_roofs(self, lines: list[RoofLine]) -> None:
        for line in sorted(lines, key=lambda item: not item.sloping):
            segment = self.plane.segment(line.start, line.end)
            width = text_width(line.label)
            prefer = 0.1 if line.sloping else 1.0
            spot = self.placer.best_of(along(segment, width, TEXT_HEIGHT, prefer))
            if spot is None:
                middle = segment[0] if line.sloping else segment[1]
                anchor = Anchor(middle[0], middle[1], 2.0)
                spot = self.placer.best_of(around([anchor], width, TEXT_HEIGHT))
            if spot is not None:
                colour = _roof_colour(line.roofs[0])
                self._write(spot.box, line.label, spot.leader, "roof", colour)

    def _number(self, spots: list[_Spot]) -> None:
        for kernel in self.named:
            anchors = [
                Anchor(spot.x, spot.y, spot.diameter * PT / 2, 1.0 * turn)
                for turn, spot in enumerate(s for s in reversed(spots) if s.kernel is kernel)
            ]
            text = str(kernel.number)
            label = self.placer.best_of(around(anchors, text_width(text, bold=True), 11.0))
            if label is not None:
                self._write(label.box, text, label.leader, "kernel")

    def _write(
        self, box: Box, text: str, leader: Segment | None, role: str, colour: str = INK
    ) -> None:
        if leader is not None:
            (x0, y0), (x1, y1) = leader
            self.sheet.line([x0, x1], [y0, y1], color=QUIET, linewidth=0.6, zorder=5)
        bold = role == "kernel"
        self.sheet.text(box.x, box.y, text, Ink(ha="center", rotation=box.angle, colour=colour,
                        bold=bold, halo=True, role=role))  # fmt: skip


def _roof_colour(roof: Roof) -> str:
    return QUIET if roof.source == "datasheet" else LEVEL_COLOURS.get(roof.key, INK)


def _tooltip(kernel: RooflineKernel, point: RooflinePoint) -> str:
    bound = LABELS.get(kernel.bound_by, "")
    reached = Text(
        "{share} of what the roofs allow at this intensity", share=share(point.roof_share)
    )
    return tooltip(
        f"{kernel.number} {kernel.label}",
        flop_rate(kernel.throughput),
        labelled(roof_label(point.level), intensity(point.intensity)),
        say(reached) if point.roof_share is not None else "",
        say(Text("bound by {unit}", unit=Word(bound))) if bound else "",
        of_gpu_time(kernel.share),
    )


def _si(value: float) -> str:
    step, prefix = next((step for step in SI if value >= step[0] * 0.999), SI[-1])
    return f"{value / step:g} {prefix}".rstrip()


def _decades(low: float, high: float) -> list[float]:
    powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    # At most nine labels fit side by side on the narrow axis.
    stride = max(1, -(-len(powers) // 9))
    return [10.0**power for power in powers if power % stride == 0]


def _minor(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [digit * 10.0**power for power in powers for digit in range(2, 10)]
    return [value for value in every if low <= value <= high]
