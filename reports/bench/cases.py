"""The words that the sections of formatted text use for cases; the rest is in reports.cases."""

from __future__ import annotations

from typing import Any

from nsight_prof.parsers.cells import Row, known, number
from nsight_prof.reports.cases.rows import (
    cases,
    measured,
    params_of,
    ratio,
    roof_name,
    shape_text,
)
from nsight_prof.reports.formats import NA, byte_rate, flop_rate, significant

__all__ = [
    "cases",
    "interval_text",
    "measured",
    "params_of",
    "rate_text",
    "ratio",
    "roof_name",
    "shape_text",
    "value_text",
]

DIGITS = 4
"""Of measured roofs: they repeat within 0.1 %, which three digits would hide."""
_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def value_text(value: Any, unit: str, digits: int = DIGITS) -> str:
    """Return a value with its unit and as many digits as a roof deserves: "4.622 TB/s"."""
    if known(value) is None:
        return NA
    step, name = _scale(abs(number(value)), unit)
    return f"{significant(number(value) / step, digits)} {name}".rstrip()


def interval_text(low: Any, high: Any, unit: str, digits: int = DIGITS) -> str:
    """Return "4.615 to 4.627 TB/s"; "n/a" where an end is unknown."""
    if known(low) is None or known(high) is None:
        return NA
    step, name = _scale(max(abs(number(low)), abs(number(high))), unit)
    ends = [significant(number(end) / step, digits) for end in (low, high)]
    return f"{' to '.join(ends)} {name}".rstrip()


def _scale(size: float, unit: str) -> tuple[float, str]:
    """Return what to divide by, and the unit with its prefix."""
    if unit == "s":
        return next((s for s in _TIME if size >= s[0] * 0.99995), _TIME[-1])
    if unit in ("B/s", "FLOP/s", "B", "FLOP", "Hz"):
        step, prefix = next((s for s in _SI if size >= s[0] * 0.99995), _SI[-1])
        return step, f"{prefix}{unit}"
    return 1.0, unit


def rate_text(row: Row) -> str:
    """Return what a case reached: FLOP/s, or B/s where it has no FLOPs; "n/a" without both."""
    if known(row["flop_per_s"]) is not None:
        return flop_rate(row["flop_per_s"])
    return byte_rate(row["bytes_per_s"])
