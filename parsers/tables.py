"""Contracts of the tidy tables: every column with its dtype, unit and meaning, declared once.

Units stand in the column name or in a `unit` column. Unknown is empty (NaN, NA), never 0. Readers
end with `check`; an empty result is an empty frame that has all columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.packaged import packaged_yaml

DTYPES = {
    "string": "string",
    "int": "Int64",
    "float": "float64",
    "bool": "boolean",
    "category": "category",
}


@dataclass(frozen=True)
class Column:
    """One column: `dtype` is string, int, float, bool or category; `unit` may be empty."""

    name: str
    dtype: str
    unit: str
    meaning: str


@cache
def tables() -> dict[str, tuple[Column, ...]]:
    """Return all declared tables in the order of tables.yaml."""
    return {
        table: tuple(Column(name, *facts) for name, facts in columns.items())
        for table, columns in packaged_yaml("nsight_prof.parsers", "tables.yaml").items()
    }


def empty(table: str) -> pd.DataFrame:
    """Return an empty frame with all columns of `table`."""
    return check(pd.DataFrame({c.name: [] for c in tables()[table]}), table)


def check(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """Return `frame` with the declared columns, order and dtypes.

    A missing column, an undeclared one or a value that does not fit is a programming error and
    raises ValueError with the table and the column.
    """
    columns = tables()[table]
    names = [c.name for c in columns]
    missing = [n for n in names if n not in frame.columns]
    extra = [n for n in frame.columns if n not in names]
    if missing or extra:
        raise ValueError(f"table {table}: missing columns {missing}, undeclared columns {extra}")
    checked = {}
    for column in columns:
        try:
            checked[column.name] = frame[column.name].astype(DTYPES[column.dtype])  # type: ignore[call-overload]
        except (TypeError, ValueError) as error:
            raise ValueError(f"table {table}, column {column.name}: {error}") from error
    return pd.DataFrame(checked).reset_index(drop=True)


def write(frame: pd.DataFrame, table: str, folder: Path, *, csv: bool = True) -> None:
    """Write `table` to `folder` as Parquet and CSV (full precision)."""
    folder.mkdir(parents=True, exist_ok=True)
    checked = check(frame, table)
    checked.to_parquet(folder / f"{table}.parquet", index=False)
    if csv:
        checked.to_csv(folder / f"{table}.csv", index=False)


def read(folder: Path, table: str) -> pd.DataFrame:
    """Read `table` back; a table that the run does not have is empty.

    Raises:
        ArtifactUnreadable: the file is damaged or of another layout.
    """
    path = folder / f"{table}.parquet"
    if not path.is_file():
        return empty(table)
    try:
        return check(pd.read_parquet(path), table)
    except (OSError, ValueError) as error:
        raise ArtifactUnreadable(
            f"{path} cannot be read: {error}", "make the tables again: prof report RUN"
        ) from error
