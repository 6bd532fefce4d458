"""Numbers with units: one ladder of prefixes, and the digits of each kind of quantity."""

from __future__ import annotations

import math
from collections.abc import Sequence

SI = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"), (1e-12, "ps"))
BINARY = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_PREFIXED = ("B/s", "B", "FLOP/s", "FLOP", "Hz", "W")

LADDERS: dict[str, tuple[tuple[float, str], ...]] = {
    "s": _TIME,
    "ns": tuple((step * 1e9, unit) for step, unit in _TIME),
    "iB": BINARY,
    **{unit: tuple((step, prefix + unit) for step, prefix in SI) for unit in _PREFIXED},
}
"""Base unit -> (size in base units, unit with its prefix), largest first. "iB": bytes shown with
binary prefixes, as sizes of caches and buffers are chosen."""
IN_TABLES = 3
"""Significant digits of numbers in tables."""


def significant(value: float, digits: int) -> str:
    """Return a finite value with so many significant digits, without an exponent in [1e-4, 1e9)."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    size = abs(rounded)
    if not 1e-4 <= size < 1e9:
        return f"{rounded:.{digits - 1}e}"
    return f"{rounded:,.{max(0, digits - 1 - math.floor(math.log10(size)))}f}"


def step_of(value: float, unit: str, digits: int) -> tuple[float, str]:
    """Return what to divide a value of a base unit by, and the unit with its prefix."""
    steps = LADDERS.get(unit)
    if steps is None:
        return 1.0, unit
    # 999.9 with three digits is 1.00 of the next step, never 1,000 of this one.
    size = abs(float(f"{value:.{digits - 1}e}"))
    if size == 0:
        return next(step for step in steps if step[0] <= 1.0)
    return next((step for step in steps if size >= step[0]), steps[-1])


def factor(prefixed: str, base: str) -> float:
    """Return how many of its base unit one of a unit with a prefix is: ("TB/s", "B/s") -> 1e12.

    Raises:
        ValueError: the unit is none of that base unit.
    """
    if prefixed == base:
        return 1.0
    if (prefixed, base) == ("%", "fraction"):
        return 0.01
    for step, unit in (*LADDERS.get(base, ()), *(LADDERS["iB"] if base == "B" else ())):
        if unit == prefixed:
            return step
    raise ValueError(f"{prefixed!r} is no unit of {base!r}")


def places(total: float, unit: str, digits: int = 0) -> tuple[float, str, int]:
    """Return how a total and its parts are shown: divided by what, in which unit, decimals.

    The total has so many significant digits; without a number of them at least three, and a
    decimal as a table needs it for its small parts.
    """
    if unit == "fraction":
        return 0.01, "%", max(0, digits - 2) if digits else 1
    step, name = step_of(total, unit, IN_TABLES)
    if digits:
        return step, name, max(0, digits - 1 - math.floor(math.log10(total / step)))
    return step, name, 1 if total / step >= 10 else 2


def parts_of(total: float, values: Sequence[float | None], grain: float) -> list[float | None]:
    """Return parts as multiples of `grain` that add up to the total, rounded alike.

    The largest remainders are rounded up; each part differs by less than one grain. Parts that do
    not add up to the total before are rounded one by one. Unknown ones (None) stay so.
    """
    counts = {n: math.floor(value / grain) for n, value in enumerate(values) if value is not None}
    remainders = {n: (values[n] or 0.0) / grain - count for n, count in counts.items()}
    missing = round(total / grain) - sum(counts.values())
    exact = abs(total / grain - sum(value / grain for value in values if value is not None)) < 1
    largest = sorted(remainders, key=remainders.__getitem__, reverse=True)[: max(0, missing)]
    up = largest if exact else [n for n, rest in remainders.items() if rest >= 0.5]
    return [
        None if n not in counts else (counts[n] + (n in up)) * grain for n in range(len(values))
    ]


def percent(value: float, digits: int) -> str:
    """Return a number of per cent: whole from ten on with two digits, else with one decimal.

    Below one it has two digits in tables, too, as in the sentence that leads there.
    """
    if 0 < abs(value) < 0.05:
        return "<0.1 %" if value > 0 else ">-0.1 %"
    if digits > 2 and abs(value) >= 0.995:
        return f"{round(value, 1) + 0.0:.1f} %"
    return f"{significant(value, 2) if abs(value) < 99.5 else f'{value:,.0f}'} %"


def change(value: float, digits: int) -> str:
    """Return a relative change with its sign: "-3.9 %", "+41 %", from tenfold on "12x"."""
    if value >= 9:
        return f"{significant(value + 1, digits)}x"
    decimals = 0 if digits < 3 and abs(value) >= 0.0995 else 1
    return f"{round(100 * value, decimals) + 0.0:+,.{decimals}f} %"


def quantity(value: float, unit: str, digits: int) -> str:
    """Return a finite value with its unit: "4.6 TB/s", "12 %", "34x", "1,264"."""
    if unit == "count":
        return f"{round(value):,}"
    if unit == "fraction":
        return percent(100 * value, digits)
    if unit == "%":
        return percent(value, digits)
    if unit == "x":
        return f"{significant(value, _whole_digits(value, digits))}x"
    if unit == "change":
        return change(value, digits)
    step, name = step_of(value, unit, max(digits, IN_TABLES))
    scaled = value / step
    # Sizes that are chosen (64 MiB, 128 B) are whole.
    is_exact = scaled.is_integer() and (unit == "iB" or name == "B")
    text = f"{scaled:,.0f}" if is_exact else significant(scaled, _whole_digits(scaled, digits))
    return f"{text} {name}".rstrip()


def _whole_digits(value: float, digits: int) -> int:
    """Return at least the digits before the point, up to those of tables.

    "260 ms" in a sentence beside "264 ms" in a table would be read as another number.
    """
    before_point = math.floor(math.log10(abs(value))) + 1 if abs(value) >= 1 else 0
    return max(digits, min(before_point, IN_TABLES))
