"""Axes of the figures about measured cases: limits, round ticks and their text, bytes included."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from nsight_prof.reports.page.formats import significant
from nsight_prof.reports.page.units import BINARY
from nsight_prof.reports.plots.ticks import draw_ticks

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
