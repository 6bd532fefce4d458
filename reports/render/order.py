"""What a table on a page is sorted by: the number behind a text like "12.3 us" or "<0.1 %".

Every unit that reports.formats writes is known, so that 900 us comes before 1.2 ms.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nsight_prof.reports.page.units import BINARY, SI

_VALUE = re.compile(
    r"(?P<less><?)\s*(?P<number>[+-]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"\s*(?P<unit>%|[A-Za-zµ]*)(?P<per>/[A-Za-z]+)?"
)
_TIMES = {"s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "ns": 1.0, "min": 60e9, "h": 3600e9}
_BINARY = {unit: step for step, unit in BINARY if unit != "B"}
_PREFIXES = {prefix: step for step, prefix in SI}
_BASES = ("FLOPs", "FLOP", "OP", "B", "Hz", "W")
_BELOW = 0.5
"""A text like "<0.1 %" stands for something above 0 and below the number."""


class Key(NamedTuple):
    """A number in its base unit, and that unit ("" for none or an unknown one)."""

    value: float
    unit: str


def sort_key(text: str) -> Key | None:
    """Return the number that a cell begins with; None where there is none."""
    found = _VALUE.match(text.strip())
    if found is None:
        return None
    factor, unit = _unit(found["unit"])
    value = float(found["number"].replace(",", "")) * factor
    return Key(value * _BELOW if found["less"] else value, unit and unit + (found["per"] or ""))


def _unit(text: str) -> tuple[float, str]:
    """Return how many of its base unit one of the unit `text` is, and the base unit."""
    if text in _TIMES:
        return _TIMES[text], "ns"
    if text in _BINARY:
        return _BINARY[text], "B"
    for base in _BASES:
        if text.endswith(base) and text.removesuffix(base) in _PREFIXES:
            return _PREFIXES[text.removesuffix(base)], base
    return 1.0, "%" if text == "%" else ""
