"""Writes tables as CSV that a spreadsheet takes for text, not for formulas."""

from __future__ import annotations

import csv
import os
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

# What a spreadsheet computes: a cell beginning with one of these that is no number.
_FORMULA = re.compile(r"(?:[=@\t\r]|[+-](?![\d.,]+(?:[eE][+-]?\d+)?$))")


def write_csv(frame: pd.DataFrame, target: Path | TextIO, *, header: bool = True) -> None:
    """Write a table in full precision; an apostrophe goes before text that looks like a formula.

    Names of kernels and ranges come from the profiled program, and a spreadsheet would execute
    `=HYPERLINK(…)`. Numbers stay numbers; Parquet holds all text as it is.
    """
    # Two thirds of the time of frame.to_csv, which makes text of each number before it writes it.
    columns = [_cells(frame[name]) for name in frame.columns]
    with (
        target.open("w", encoding="utf-8", newline="")
        if isinstance(target, Path)
        else nullcontext(target)
    ) as stream:
        writer = csv.writer(stream, lineterminator=os.linesep)
        if header:
            writer.writerow(frame.columns)
        writer.writerows(zip(*columns, strict=True))


def _cells(column: Any) -> list[Any]:
    """Return the cells of a column as csv writes them: None where they are empty."""
    values: list[Any] = column.to_numpy(dtype=object, na_value=None).tolist()
    if column.dtype.kind in "iufb":
        return values
    # Few values of a column differ: nearly all are names.
    formulas = {value: f"'{value}" for value in {*values} if _FORMULA.match(str(value))}
    return [formulas.get(value, value) for value in values] if formulas else values
