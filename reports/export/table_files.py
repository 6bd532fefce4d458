"""Writes the tidy tables of a run as Parquet or CSV for other tools, of any size."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.csv_cells import write_csv
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.whole_file import written_whole

ROWS = 1 << 16  # rows that are text at a time


def export_tables(run: Run, form: str, path: Path, names: Sequence[str] = ()) -> dict[Path, int]:
    """Write tables of `run` as `form` ("parquet" or "csv"); return the rows of each file.

    `path` is a folder that gets one file per table; or, where one table is named and `path` ends in
    `.parquet` or `.csv`, that file. Without `names` all tables that have rows are written.

    Raises:
        UsageError: no such table, or none has rows.
        ArtifactUnreadable: a table of the run is damaged.
        StepFailed: a file cannot be written.
    """
    sources = _sources(run, names)
    if len(names) == 1 and path.suffix == f".{form}":
        targets = {path: sources[names[0]]}
    else:
        targets = {path / f"{name}.{form}": source for name, source in sources.items()}
    return {target: _write(WRITERS[form], source, target) for target, source in targets.items()}


def _sources(run: Run, names: Sequence[str]) -> dict[str, Path]:
    """The Parquet files of the tables that are asked for."""
    if unknown := [name for name in names if name not in tables.tables()]:
        raise UsageError(
            f"there is no table {', '.join(unknown)}",
            f"one of: {', '.join(tables.tables())}",
        )
    folder = run.directory.tables
    found = {
        name: path
        for name in names or tables.tables()
        if (path := folder / f"{name}.parquet").is_file() and (names or _rows(path))
    }
    if missing := [name for name in names if name not in found]:
        raise UsageError(
            f"{run.path} has no table {', '.join(missing)}",
            f"make the tables: prof report {run.path}",
        )
    if not found:
        raise UsageError(
            f"{run.path} has no table with rows", f"see why in its report: prof report {run.path}"
        )
    return found


def _rows(path: Path) -> int:
    with tables.parquet_file(path) as file:
        return int(file.metadata.num_rows)


def _write(writer: Callable[[Path, Path], None], source: Path, target: Path) -> int:
    rows = _rows(source)
    with written_whole(target) as partial:
        writer(source, partial)
    return rows


def _csv(source: Path, target: Path) -> None:
    with tables.parquet_file(source) as file:
        names = [name for name in file.schema_arrow.names if not name.startswith("__index")]
    with target.open("w", encoding="utf-8", newline="") as stream:
        write_csv(pd.DataFrame(columns=names), stream)
        for frame in tables.batches(source, ROWS, names):
            write_csv(frame, stream, header=False)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


WRITERS: dict[str, Callable[[Path, Path], None]] = {"csv": _csv, "parquet": _copy}
