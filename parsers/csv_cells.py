"""Writes tables as CSV that a spreadsheet takes for text, not for formulas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TextIO

import pandas as pd

# What a spreadsheet computes: a cell beginning with one of these that is no number.
_FORMULA = re.compile(r"(?:[=@\t\r]|[+-](?![\d.,]+(?:[eE][+-]?\d+)?$))")


def write_csv(frame: pd.DataFrame, target: Path | TextIO, *, header: bool = True) -> None:
    """Write a table in full precision; an apostrophe goes before text that looks like a formula.

    Names of kernels and ranges come from the profiled program, and a spreadsheet would execute
    `=HYPERLINK(…)`. Numbers stay numbers; Parquet holds all text as it is.
    """
    _as_cells(frame).to_csv(target, index=False, header=header)


def _as_cells(frame: pd.DataFrame) -> pd.DataFrame:
    changed = {}
    for name in frame.columns:
        if frame[name].dtype.kind in "iufbM":
            continue
        # Few values of a column differ: nearly all are names.
        if any(_FORMULA.match(str(value)) for value in frame[name].unique()):
            text = frame[name].astype("string")
            changed[name] = text.mask(text.str.match(_FORMULA).fillna(False), "'" + text)
    return frame.assign(**changed) if changed else frame
