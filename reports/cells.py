"""Turns table rows into plain Python values: unknown numbers to NaN or None, unknown text to ""."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from nsight_prof.parsers.cells import Row as Row
from nsight_prof.parsers.cells import number as number
from nsight_prof.parsers.cells import records as records


def known(value: Any) -> float | None:
    """Return a float; None where unknown or not finite."""
    found = number(value)
    return found if math.isfinite(found) else None


def count(value: Any) -> int | None:
    """Return an int; None where unknown."""
    found = known(value)
    return None if found is None else int(found)


def text(value: Any) -> str:
    """Return a string; empty where unknown."""
    return "" if value is None or pd.isna(value) else str(value)


def names(value: Any) -> tuple[str, ...]:
    """Return the parts of a comma-separated cell, such as the stages of a kernel."""
    return tuple(part.strip() for part in text(value).split(",") if part.strip())
