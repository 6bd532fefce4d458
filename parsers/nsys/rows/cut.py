"""Cuts a trace down to what one NVTX range issued, as though nothing else had been recorded."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.nsys.sqlite.database import Database
from nsight_prof.parsers.nsys.sqlite.schema import (
    GRAPH_TRACE,
    KERNEL,
    MEMCPY,
    MEMSET,
    NVTX,
    RANGES,
    RUNTIME,
    STRINGS,
)
from nsight_prof.parsers.run.directory import plain_file

OPERATIONS = (KERNEL, MEMCPY, MEMSET, GRAPH_TRACE)
KEPT = ("META_DATA_EXPORT", "EXPORT_META_DATA", STRINGS, "TARGET_INFO_GPU",
        "TARGET_INFO_CUDA_GPU", "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_SESSION_START_TIME",
        "ENUM_CUDA_MEMCPY_OPER")  # fmt: skip
"""Tables that say what is true of any part of the trace; those that are not needed are left out."""


class Cutter:
    """An nsys SQLite export from which parts are cut; made by `open_cutter`."""

    def __init__(self, path: Path, label: Path) -> None:
        self._path, self._shown = path, label
        db = Database(path, label)
        try:
            names = (*KEPT, *OPERATIONS, RUNTIME, NVTX)
            self._tables = {name: found for name in names if (found := db.table(name))}
            self._has_text_id = "textId" in db.columns(NVTX)
        finally:
            db.close()

    def cut(self, names: Sequence[str], target: Path, occurrence: int | None = None) -> list[int]:
        """Write the calls in all ranges called one of `names`, and the GPU work that they issued.

        Returns the numbers of the ranges that are kept, from 1, among all of these names by start.

        Args:
            names: texts of NVTX push/pop or start/end ranges that were closed.
            target: SQLite file to write; replaced where it exists.
            occurrence: which range of each name is kept, from 1 by start; None for all.

        Raises:
            ArtifactUnreadable: there is no such range, or the trace is damaged.
        """
        target.unlink(missing_ok=True)
        try:
            with closing(sqlite3.connect(target)) as connection:
                source = f"file:{quote(str(self._path.resolve()))}?mode=ro&immutable=1"
                connection.execute("ATTACH ? AS source", (source,))
                self._write(connection, names, occurrence)
                connection.commit()
                return self._numbers(connection, names)
        except sqlite3.Error as error:
            raise ArtifactUnreadable(
                f"{self._shown} is damaged: {error}",
                "copy the file again, or export the report again: nsys export --type sqlite",
            ) from error

    def _write(
        self, connection: sqlite3.Connection, names: Sequence[str], occurrence: int | None
    ) -> None:
        connection.execute("CREATE TEMP TABLE part (first, last, thread)")
        for name in names:
            self._find(connection, name, occurrence)
        inside = (
            "EXISTS (SELECT 1 FROM part WHERE globalTid = thread AND start >= first "
            "AND start < last)"
        )
        copy = 'CREATE TABLE "{0}" AS SELECT * FROM source."{0}"'
        for table in KEPT:
            if found := self._tables.get(table):
                connection.execute(copy.format(found))
        for table in (NVTX, RUNTIME):
            if found := self._tables.get(table):
                connection.execute(f"{copy.format(found)} WHERE {inside}")
        calls = self._tables.get(RUNTIME)
        for table in OPERATIONS:
            if found := self._tables.get(table):
                # The high bits of a thread's number are its process, as those of globalPid.
                issued = f'SELECT correlationId, globalTid >> 24 FROM "{calls}"'
                where = f"(correlationId, globalPid >> 24) IN ({issued})" if calls else "0"
                connection.execute(f"{copy.format(found)} WHERE {where}")

    def _find(self, connection: sqlite3.Connection, name: str, occurrence: int | None) -> None:
        """Add the ranges of this name to the table `part`."""
        before, nvtx = connection.total_changes, self._tables.get(NVTX)
        limit = "" if occurrence is None else f"LIMIT 1 OFFSET {occurrence - 1}"
        if nvtx:
            connection.execute(
                f'INSERT INTO part SELECT start, end, globalTid FROM source."{nvtx}" '
                f"WHERE {RANGES} AND end IS NOT NULL AND {self._text()} = ? ORDER BY start {limit}",
                (name,),
            )
        if connection.total_changes == before:
            raise self._absent(name, occurrence)

    def _text(self) -> str:
        """Return the expression of a range's name."""
        if not self._has_text_id:
            return "text"
        return f'coalesce(text, (SELECT value FROM source."{STRINGS}" WHERE id = textId))'

    def _numbers(self, connection: sqlite3.Connection, names: Sequence[str]) -> list[int]:
        any_name = ", ".join("?" * len(names))
        rows = connection.execute(
            "SELECT (start, globalTid) IN (SELECT first, thread FROM part) "
            f'FROM source."{self._tables[NVTX]}" WHERE {RANGES} AND end IS NOT NULL '
            f"AND {self._text()} IN ({any_name}) ORDER BY start",
            tuple(names),
        )
        return [number for number, (is_kept,) in enumerate(rows, start=1) if is_kept]

    def _absent(self, name: str, occurrence: int | None) -> ArtifactUnreadable:
        which = "" if occurrence is None else f" number {occurrence}"
        return ArtifactUnreadable(
            f"{self._shown} has no closed NVTX range {name!r}{which}",
            "its ranges are in column nvtx_path of table launches, of a run with capture: all",
        )


@contextmanager
def open_cutter(path: Path) -> Iterator[Cutter]:
    """Open an nsys SQLite export (.sqlite or .sqlite.xz), strictly read only, to cut parts of it.

    Raises:
        ArtifactUnreadable: not a whole SQLite file.
    """
    with plain_file(path) as unpacked:
        yield Cutter(unpacked, path)
