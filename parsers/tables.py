"""Contracts of the tidy tables: every column with its dtype, unit and meaning, declared once.

Units stand in the column name or in a `unit` column. Unknown is empty (NaN, NA), never 0. Readers
end with `check`; an empty result is an empty frame that has all columns.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet

from nsight_prof import parsers
from nsight_prof.parsers.csv_cells import write_csv
from nsight_prof.parsers.packaged import Column as Column
from nsight_prof.parsers.packaged import tables as tables
from nsight_prof.parsers.reading import reading

if parsers.PROCESS_IS_PROF:
    # Most tables have few rows: to give each name of a column or a kernel to Arrow, and to take it
    # back, is a fifth of the time of findings.
    pd.set_option("mode.string_storage", "python")

WHAT = ("a table", "make the tables again: prof report RUN")
ROWS_A_BYTE = 2
"""Rows of a Parquet file that a byte can hold: each row has a start or a name of its own."""
ROWS_FOR_THREADS = 10_000
"""Rows of a table from which on several threads read its columns."""

DTYPES = {
    "string": "string",
    "int": "Int64",
    "float": "float64",
    "bool": "boolean",
    "category": "category",
}
_TYPES = {name: pd.api.types.pandas_dtype(dtype) for name, dtype in DTYPES.items()}
_NOTHING = {name: pd.Series([], dtype="float64").astype(dtype) for name, dtype in _TYPES.items()}


def empty(table: str) -> pd.DataFrame:
    """Return an empty frame with all columns of `table`."""
    return _empty(table).copy()


@cache
def _empty(table: str) -> pd.DataFrame:
    columns = {column.name: _NOTHING[column.dtype].array for column in tables()[table]}
    return pd.DataFrame(columns, index=pd.RangeIndex(0))  # of Series pandas would align the rows


ADDED: dict[str, dict[str, str | None]] = {
    "gaps": {"kind": ""},
    "idle_gaps": {"host_range": ""},
    "gpu_idle_gaps": {"host_range": ""},
    "memory_operations": {"startup_ns": None},
    "rank_steps": {"overlapped_ns": None},
    "source_instructions": {"callers": ""},
}
"""Columns that tables of older runs lack, and what stands in them then."""


def check(frame: pd.DataFrame, table: str, only: Sequence[str] | None = None) -> pd.DataFrame:
    """Return `frame` with the declared columns (those of `only`), their order and dtypes.

    A missing column, an undeclared one or a value that does not fit is a programming error and
    raises ValueError with the table and the column.
    """
    columns = [column for column in tables()[table] if only is None or column.name in only]
    names = [c.name for c in columns]
    missing = [n for n in names if n not in frame.columns]
    extra = [n for n in frame.columns if n not in names]
    if missing or extra:
        raise ValueError(f"table {table}: missing columns {missing}, undeclared columns {extra}")
    dtypes = [_TYPES[column.dtype] for column in columns]
    if [*frame.columns] == names and [*frame.dtypes] == dtypes:
        return frame.reset_index(drop=True)
    arrays: dict[str, Any] = {}
    # What does not fit is an error below; numpy would print a warning before.
    with np.errstate(invalid="ignore"):
        for name, dtype in zip(names, dtypes, strict=True):
            values: Any = frame[name].array
            try:  # of arrays: pandas takes twice the time for Series
                arrays[name] = values.astype(dtype)
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError(f"table {table}, column {name}: {error}") from error
    return pd.DataFrame(arrays, copy=False)


def write(frame: pd.DataFrame, table: str, folder: Path, *, csv: bool = True) -> None:
    """Write `table` to `folder` as Parquet and CSV (full precision)."""
    folder.mkdir(parents=True, exist_ok=True)
    is_empty = not len(frame) and [*frame.columns] == [column.name for column in tables()[table]]
    if is_empty:  # as most tables of a run are
        as_parquet, as_csv = _empty_files(table)
        (folder / f"{table}.parquet").write_bytes(as_parquet)
        if csv:
            (folder / f"{table}.csv").write_text(as_csv, encoding="utf-8")
        return
    checked = check(frame, table)
    parquet.write_table(_as_arrow(checked, table), folder / f"{table}.parquet")
    if csv:
        write_csv(checked, folder / f"{table}.csv")


def _as_arrow(checked: pd.DataFrame, table: str) -> pa.Table:
    """Return what `pa.Table.from_pandas` does, which describes all columns anew in most of its time
    for few rows. Categories are a part of their type: they are described."""
    schema = _empty_schema(table)
    if any(pa.types.is_dictionary(field.type) for field in schema):
        return pa.Table.from_pandas(checked, preserve_index=False)
    # pandas wraps plain floats so that Arrow would ask for each of them.
    columns = (
        values.to_numpy() if isinstance(values.dtype, np.dtype) else values.array
        for _, values in checked.items()
    )
    arrays = [
        pa.array(values, field.type, from_pandas=True)
        for values, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


@cache
def _empty_files(table: str) -> tuple[bytes, str]:
    """Return what Parquet and CSV of an empty table hold."""
    as_parquet = io.BytesIO()
    parquet.write_table(_empty_schema(table).empty_table(), as_parquet)
    names = [column.name for column in tables()[table]]
    return as_parquet.getvalue(), ",".join(names) + os.linesep


def read(folder: Path, table: str, only: Sequence[str] | None = None) -> pd.DataFrame:
    """Read `table` back, or `only` these columns; a table that the run does not have is empty.

    Raises:
        ArtifactUnreadable: the file is damaged or of another layout.
    """
    path = folder / f"{table}.parquet"
    if not path.is_file() or _is_empty(path, table):
        return _nothing(table, only)
    with parquet_file(path) as file, reading(path, *WHAT):
        if not file.metadata.num_rows and file.schema_arrow.equals(_empty_schema(table)):
            return _nothing(table, only)
        # To wake threads for few rows takes longer than the rows.
        threads = file.metadata.num_rows > ROWS_FOR_THREADS
        frame = file.read(only, use_threads=threads).to_pandas(use_threads=threads)
        for name, value in ADDED.get(table, {}).items():
            if name not in frame.columns:
                frame[name] = value
        return check(frame, table, only)


def _is_empty(path: Path, table: str) -> bool:
    """Return whether a file is as `write` makes an empty table: Parquet takes ten times as long."""
    with reading(path, *WHAT):
        as_written = _empty_files(table)[0]
        return path.stat().st_size == len(as_written) and path.read_bytes() == as_written


def _nothing(table: str, only: Sequence[str] | None) -> pd.DataFrame:
    return empty(table) if only is None else empty(table)[[*only]]


def is_of_now(folder: Path, table: str) -> bool:
    """Return whether `table` is not there, or `read` finds its columns: only their names are read.

    Raises:
        ArtifactUnreadable: the file is damaged.
    """
    path = folder / f"{table}.parquet"
    if not path.is_file():
        return True
    with reading(path, *WHAT):
        found = parquet.read_metadata(path).schema.names
    names = {*found, *ADDED.get(table, {})}
    return names == {column.name for column in tables()[table]}


@cache
def _empty_schema(table: str) -> pa.Schema:
    """Put together what Arrow makes of each type: of whole tables it takes most of a tenth of a
    second in each process."""
    columns = tables()[table]
    of_type = {column.dtype: _schema_of(column.dtype) for column in columns}
    described = [
        schema.pandas_metadata["columns"][0] | {"name": name, "field_name": name}
        for name, schema in ((column.name, of_type[column.dtype]) for column in columns)
    ]
    of_pandas = {**of_type[columns[0].dtype].pandas_metadata, "columns": described}
    fields = [of_type[column.dtype].field(0).with_name(column.name) for column in columns]
    return pa.schema(fields, {"pandas": json.dumps(of_pandas)})


@cache
def _schema_of(dtype: str) -> pa.Schema:
    return pa.Schema.from_pandas(pd.DataFrame({dtype: _NOTHING[dtype]}), preserve_index=False)


def batches(path: Path, rows: int, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
    """Read a table's file batch by batch, `rows` rows at a time; raises as `read`."""
    with parquet_file(path) as file:
        batches = file.iter_batches(rows, columns=columns)
        while True:
            with reading(path, *WHAT):
                batch = next(batches, None)
                if batch is None:
                    return
                frame = batch.to_pandas()
            yield frame


@contextmanager
def parquet_file(path: Path) -> Iterator[parquet.ParquetFile]:
    """Open a table's file.

    Raises:
        ArtifactUnreadable: it is damaged, of another layout, or says to hold more than it can.
    """
    with reading(path, *WHAT):
        file = parquet.ParquetFile(path)
        if file.metadata.num_rows > ROWS_A_BYTE * path.stat().st_size:
            raise ValueError(f"{file.metadata.num_rows:,} rows are more than its size can hold")
    with file:
        yield file
