"""Finds places for labels: candidate boxes in, the cheapest one that covers nothing out.

Plain geometry in pixels (y upwards); boxes may be turned, for text along a sloping line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from heapq import merge

Point = tuple[float, float]
Segment = tuple[Point, Point]

# A label on a line is readable (it has a halo) but worse than one this many pixels further off.
CROSSING_COST = 14.0
# A leader line behind another label takes the eye to the wrong marker.
LEADER_COST = 60.0


@dataclass(frozen=True)
class Box:
    """A rectangle around (x, y), turned by `angle` degrees counter-clockwise."""

    x: float
    y: float
    width: float
    height: float
    angle: float = 0.0

    @cached_property
    def corners(self) -> tuple[Point, Point, Point, Point]:
        """The four corners, in order."""
        cos, sin = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        dx, dy = self.width / 2, self.height / 2
        turned = [
            (self.x + u * cos - v * sin, self.y + u * sin + v * cos)
            for u, v in ((-dx, -dy), (dx, -dy), (dx, dy), (-dx, dy))
        ]
        return turned[0], turned[1], turned[2], turned[3]

    @cached_property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, bottom, right, top of the upright box around this one."""
        xs, ys = zip(*self.corners, strict=True)
        return min(xs), min(ys), max(xs), max(ys)

    def grown(self, gap: float) -> Box:
        """Return this box with `gap` more on every side."""
        return Box(self.x, self.y, self.width + 2 * gap, self.height + 2 * gap, self.angle)

    def inside(self, outer: Box) -> bool:
        """Whether this box lies wholly inside the upright box `outer`."""
        extent, its = self.extent, outer.extent
        return (
            its[0] <= extent[0]
            and its[1] <= extent[1]
            and extent[2] <= its[2]
            and extent[3] <= its[3]
        )

    def overlaps(self, box: Box) -> bool:
        """Whether the two boxes share any area (separating axis theorem)."""
        a, b = self.extent, box.extent
        if a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]:
            return False
        return not (self.angle % 90 or box.angle % 90) or not _separated(self.corners, box.corners)

    def crosses(self, segment: Segment) -> bool:
        """Whether a line segment runs through this box."""
        (x0, y0), (x1, y1) = segment
        x_low, bottom, right, top = self.extent
        if max(x0, x1) <= x_low or min(x0, x1) >= right:
            return False
        if max(y0, y1) <= bottom or min(y0, y1) >= top:
            return False
        return not _separated(self.corners, segment)


def _separated(a: tuple[Point, ...], b: tuple[Point, ...]) -> bool:
    for shape in (a, b):
        for start, end in zip(shape, (*shape[1:], shape[0]), strict=True):
            nx, ny = start[1] - end[1], end[0] - start[0]
            on_a = [x * nx + y * ny for x, y in a]
            on_b = [x * nx + y * ny for x, y in b]
            if max(on_a) <= min(on_b) or max(on_b) <= min(on_a):
                return True
    return False


@dataclass(frozen=True)
class Candidate:
    """A place for a label: its box, what it costs, and the leader line it would need."""

    box: Box
    cost: float
    leader: Segment | None = None


@dataclass
class Placer:
    """Keeps what is taken inside `bounds`; `lines` may be crossed at a cost, boxes may not."""

    bounds: Box
    gap: float = 1.5
    taken: list[Box] = field(default_factory=list)
    lines: list[Segment] = field(default_factory=list)
    labels: list[Box] = field(default_factory=list)

    def free(self, candidate: Candidate) -> bool:
        """Whether the box lies within bounds and covers nothing."""
        box = candidate.box.grown(self.gap)
        return box.inside(self.bounds) and not any(box.overlaps(taken) for taken in self.taken)

    def _crossings(self, candidate: Candidate) -> float:
        cost = CROSSING_COST * sum(candidate.box.crosses(line) for line in self.lines)
        if candidate.leader:
            cost += LEADER_COST * sum(label.crosses(candidate.leader) for label in self.labels)
        return cost

    def best_of(self, candidates: Iterable[Candidate]) -> Candidate | None:
        """Take the cheapest free candidate, or return None where no candidate is free.

        The candidates come in the order of their costs, each when it is asked for.
        """
        best, lowest = None, math.inf
        for candidate in candidates:
            if candidate.cost >= lowest:
                break
            if not self.free(candidate):
                continue
            total = candidate.cost + self._crossings(candidate)
            if total < lowest:
                best, lowest = candidate, total
        if best is not None:
            self.taken.append(best.box)
            self.labels.append(best.box)
            if best.leader:
                self.lines.append(best.leader)
        return best


@dataclass(frozen=True)
class Anchor:
    """A marker that a label may stand at; `cost` makes one marker of several the better one."""

    x: float
    y: float
    radius: float
    cost: float = 0.0


_DISTANCES = (0, 5, 11, 18, 26, 36, 48, 62, 80, 100, 130, 170, 220, 280, 350, 430, 520)
_DIRECTIONS = tuple(math.radians(a) for a in (45, 90, 135, -45, -90, -135, 0, 180))
_FINE = tuple(math.radians(a) for a in range(0, 360, 15))
_LEADER_FROM = 8.0


def around(anchors: Iterable[Anchor], width: float, height: float) -> Iterable[Candidate]:
    """Yield places for a label of this size around its anchors, near ones cheapest."""
    return merge(*(_around(anchor, width, height) for anchor in anchors), key=lambda c: c.cost)


def _around(anchor: Anchor, width: float, height: float) -> Iterator[Candidate]:
    for distance in _DISTANCES:
        for turn, angle in enumerate(_DIRECTIONS if distance < _LEADER_FROM else _FINE):
            cos, sin = math.cos(angle), math.sin(angle)
            radius = anchor.radius + 2 + distance
            x = anchor.x + cos * (radius + width / 2)
            y = anchor.y + sin * (radius + height / 2)
            start = (anchor.x + cos * anchor.radius, anchor.y + sin * anchor.radius)
            end = (x - cos * width / 2, y - sin * height / 2)
            leader = (start, end) if distance > _LEADER_FROM else None
            cost = anchor.cost + distance + (0.3 * turn if leader is None else 0.0)
            yield Candidate(Box(x, y, width, height), cost, leader)


def along(line: Segment, width: float, height: float, prefer: float) -> Iterable[Candidate]:
    """Return places for a text along a line, on both sides; `prefer` is 0 (start) to 1 (end)."""
    return sorted(_along(line, width, height, prefer), key=lambda c: c.cost)


def _along(line: Segment, width: float, height: float, prefer: float) -> Iterator[Candidate]:
    (x0, y0), (x1, y1) = line
    length = math.hypot(x1 - x0, y1 - y0)
    if length == 0:
        return
    angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
    ux, uy = (x1 - x0) / length, (y1 - y0) / length
    room = max(length - width, 0.0)
    steps = max(int(room // 8), 1)
    for step in range(steps + 1):
        at = width / 2 + room * step / steps
        for side, off in ((1, 0.0), (-1, 0.0), (1, 13.0), (-1, 13.0), (1, 28.0), (-1, 28.0)):
            shift = side * (height / 2 + 2 + off)
            x, y = x0 + ux * at - uy * shift, y0 + uy * at + ux * shift
            foot = (x0 + ux * at, y0 + uy * at)
            tip = (foot[0] - uy * side * off, foot[1] + ux * side * off)
            cost = 40 * abs(step / steps - prefer) + 2.5 * off + (0 if side > 0 else 6)
            yield Candidate(Box(x, y, width, height, angle), cost, (foot, tip) if off else None)
