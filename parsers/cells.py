"""Rows and cells of tables as plain values."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

Row = dict[str, Any]


def records(frame: pd.DataFrame) -> list[Row]:
    """Return the rows of a table as dicts by column name."""
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]


def number(value: Any) -> float:
    """Return a float; NaN where unknown."""
    return math.nan if value is None or pd.isna(value) else float(value)
