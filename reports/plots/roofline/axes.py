"""The log-log plane of a roofline: limits that fit the data, lines of the roofs, their labels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from nsight_prof.parsers.build.roofline import scaled
from nsight_prof.reports.page.charts import Roof, RooflinePanel, ridges
from nsight_prof.reports.page.formats import byte_rate, clock, flop_rate
from nsight_prof.reports.page.values import Text
from nsight_prof.reports.plots.placement import Box, Point, Segment
from nsight_prof.reports.plots.words import say

# Roofs nearer than this are one line on paper: they share a label.
SAME_LINE = 0.04
# Decades below the highest roof that are shown at least, so that sloping roofs can be seen.
LEAST_DECADES = 2.0
ORIGINS = {"measured": "measured", "counters": "peak of the counters", "datasheet": "data sheet"}
PRECEDENCE = ("measured", "counters", "datasheet")


@dataclass(frozen=True)
class Plane:
    """Intensity (FLOP/B, x) and throughput (FLOP/s, y), both logarithmic, on a pixel rectangle."""

    box: Box
    x_min: float
    x_max: float
    y_min: float
    y_max: float

    def pixel(self, intensity: float, throughput: float) -> Point:
        """Return the place of a point in pixels."""
        x0, bottom, right, top = self.box.extent
        across = math.log(intensity / self.x_min) / math.log(self.x_max / self.x_min)
        up = math.log(throughput / self.y_min) / math.log(self.y_max / self.y_min)
        return x0 + across * (right - x0), bottom + up * (top - bottom)

    def segment(self, start: Point, end: Point) -> Segment:
        """Return a data segment in pixels."""
        return self.pixel(*start), self.pixel(*end)


@dataclass(frozen=True)
class RoofLine:
    """One drawn roof: the values that lie on it (the first is drawn), its ends in data units."""

    roofs: tuple[Roof, ...]
    start: Point
    end: Point

    @property
    def sloping(self) -> bool:
        """Whether it is a memory level."""
        return self.roofs[0].unit == "B/s"

    @property
    def label(self) -> str:
        """Names, value and source of the drawn roof, then values of other roofs on the line."""
        rate = byte_rate if self.sloping else flop_rate
        words_of_sources: list[str] = []
        for source in dict.fromkeys(roof.source for roof in self.roofs):
            group = [roof for roof in self.roofs if roof.source == source]
            names: dict[str, dict[str, None]] = {}
            for roof in group:  # near ones share a line, and each keeps its own value
                names.setdefault(rate(roof.value), {})[roof.label] = None
            entries = [f"{_joined(tuple(labels))} {value}" for value, labels in names.items()]
            words_of_sources.append(", ".join(entries))
            words = _origin(group[0])
            if len(words_of_sources) > 1:
                words_of_sources[-1] = f"{words} {rate(group[0].value)}"
            elif words:
                words_of_sources[-1:] = [words_of_sources[-1], words]
        first, *rest = words_of_sources
        return f"{first} ({'; '.join(rest)})" if rest else first


def _origin(roof: Roof) -> str:
    """Return the source, and the clock of a pipe: a kernel at a lower one cannot reach the roof."""
    is_clocked = roof.unit != "B/s" and roof.clock_hz
    at = say(Text("at {clock}", clock=clock(roof.clock_hz))) if is_clocked else ""
    return ", ".join(filter(None, (say(ORIGINS.get(roof.source, roof.source)), at)))


def _joined(labels: tuple[str, ...]) -> str:
    """Join labels, with a first word that they share said once: "Tensor bf16, fp16"."""
    first = labels[0].split(" ")[0]
    return ", ".join([labels[0], *(label.removeprefix(f"{first} ") for label in labels[1:])])


def at_clock(panel: RooflinePanel, clock_hz: float | None) -> RooflinePanel:
    """Return a panel with the roofs at `clock_hz`, for what a pipe or L1 does is per cycle.

    The clock is no more that of single roofs: `clock_hz` of each is None.
    """
    if clock_hz is None:
        return panel
    memory = tuple(_at(roof, clock_hz) for roof in panel.memory_roofs)
    compute = tuple(_at(roof, clock_hz) for roof in panel.compute_roofs)
    meet = ridges(memory, compute)
    return replace(panel, memory_roofs=memory, compute_roofs=compute, ridges=meet)


def _at(roof: Roof, clock_hz: float) -> Roof:
    value = scaled(roof.key, roof.value, roof.clock_hz, clock_hz)
    return replace(roof, value=value, clock_hz=None)


def plane(panel: RooflinePanel, box: Box) -> Plane:
    """Return a plane that holds every point, every compute roof and every ridge point."""
    xs = [point.intensity for kernel in panel.kernels for point in kernel.points]
    xs += [ridge.intensity for ridge in panel.ridges] or [1.0]
    ys = [kernel.throughput for kernel in panel.kernels]
    published = [roof.value for roof in panel.published if roof.unit != "B/s"]
    tops = [roof.value for roof in panel.compute_roofs] + published or [max(ys, default=1e12)]
    y_max = max(tops + ys) * 2.2
    y_min = min([y / 2.5 for y in ys] + [max(tops) / 10**LEAST_DECADES])
    beyond = 4 if panel.kernels else 26  # names of roofs alone stand right of where they meet
    return Plane(box, min(xs) / 2.5, max(xs) * beyond, y_min, y_max)


def _merged(roofs: Iterable[Roof]) -> list[tuple[Roof, ...]]:
    groups: list[list[Roof]] = []
    ranked = sorted(
        roofs, key=lambda r: PRECEDENCE.index(r.source) if r.source in PRECEDENCE else 9
    )
    for roof in ranked:
        for group in groups:
            if abs(math.log(roof.value / group[0].value)) < SAME_LINE:
                group.append(roof)
                break
        else:
            groups.append([roof])
    return [tuple(group) for group in groups]


def roof_lines(panel: RooflinePanel, plane: Plane) -> list[RoofLine]:
    """Return the roofs to draw: slopes end at the highest compute roof, levels at the slopes."""
    slopes = _merged([*panel.memory_roofs, *(r for r in panel.published if r.unit == "B/s")])
    levels = _merged([*panel.compute_roofs, *(r for r in panel.published if r.unit != "B/s")])
    ceiling = max((roof.value for roof in panel.compute_roofs), default=plane.y_max)
    steepest = max((group[0].value for group in slopes), default=math.inf)
    lines = []
    for group in slopes:
        rate = group[0].value
        begin = max(plane.x_min, plane.y_min / rate)
        right = min(plane.x_max, ceiling / rate)
        if begin < right:
            lines.append(RoofLine(group, (begin, begin * rate), (right, right * rate)))
    for group in levels:
        value = group[0].value
        begin = max(plane.x_min, value / steepest)
        if plane.y_min < value < plane.y_max and begin < plane.x_max:
            lines.append(RoofLine(group, (begin, value), (plane.x_max, value)))
    return lines
