"""Rows and cells of tables as plain values: unknown numbers to NaN or None, unknown text to ""."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import pandas as pd

Row = dict[str, Any]
Item = TypeVar("Item")
Key = TypeVar("Key")


def records(frame: pd.DataFrame) -> list[Row]:
    """Return the rows of a table as dicts by column name."""
    if frame.empty:  # as most tables of a run are; each column would be turned all the same
        return []
    # A tenth of the time of frame.to_dict("records"), which asks for each cell by itself.
    names = [str(name) for name in frame.columns]
    columns = [_values(column) for _, column in frame.items()]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pd.Series[Any]) -> list[Any]:
    """Return the cells of a column as Python's own values; None for NA."""
    if column.dtype == object:
        return list(pd.DataFrame({"": column}).to_dict("list")[""])
    if getattr(column.dtype, "na_value", None) is pd.NA:
        array: Any = column.array
        return list(array.to_numpy(dtype=object, na_value=None))
    return column.tolist()


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return items by their key; keys and the items of each in the order of the items."""
    found: dict[Key, list[Item]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return found


def number(value: Any) -> float:
    """Return a float; NaN where unknown."""
    if type(value) is float:  # as nearly all are: pandas takes a microsecond to say so
        return value
    return math.nan if value is None or pd.isna(value) else float(value)


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


_CELLS: dict[str, Callable[[Any], Any]] = {
    "str": text,
    "int": lambda value: count(value) or 0,
    "int | None": count,
    "float": number,
    "float | None": known,
}


def from_row(model: type[Item], row: Mapping[Any, Any], **given: Any) -> Item:
    """Return a dataclass of the cells of a row, each as the type of its field has it.

    `given` are the fields that are no column of that name.
    """
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(model)  # type: ignore[arg-type]
    cells = {f.name: _CELLS[str(f.type)](row[f.name]) for f in fields if f.name not in given}
    return model(**cells, **given)


def names(value: Any) -> tuple[str, ...]:
    """Return the parts of a comma-separated cell, such as the stages of a kernel."""
    return tuple(name.strip() for name in text(value).split(",") if name.strip())
