"""What a table on a page is sorted by: the number behind a text like "12.3 us" or "<0.1 %".

Every unit that reports.formats writes is known, so that 900 us comes before 1.2 ms.
"""

from __future__ import annotations

import re

_VALUE = re.compile(
    r"(?P<less><?)\s*(?P<number>[+-]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(?P<unit>[A-Za-zµ]*)",
    re.IGNORECASE,
)
_TIMES = {"s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "ns": 1.0, "min": 60e9, "h": 3600e9}
_BINARY = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
_PREFIXES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BASES = ("FLOP", "FLOPs", "OP", "B", "Hz", "W")
_BELOW = 0.5
"""A text like "<0.1 %" stands for something above 0 and below the number."""


def sort_key(text: str) -> float | None:
    """Return the number that a cell begins with, in its base unit; None where there is none."""
    found = _VALUE.match(text.strip())
    if found is None:
        return None
    value = float(found["number"].replace(",", "")) * _factor(found["unit"])
    return value * _BELOW if found["less"] else value


def _factor(unit: str) -> float:
    """Return how many of the base unit (ns, B, FLOP, Hz, …) one of `unit` is; unknown: 1."""
    if unit in _TIMES:
        return _TIMES[unit]
    if unit in _BINARY:
        return _BINARY[unit]
    if unit[:1] in _PREFIXES and unit[1:] in _BASES:
        return _PREFIXES[unit[0]]
    return 1.0
