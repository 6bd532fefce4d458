"""Cuts a trace down to what NVTX ranges or one process issued, as though that were all of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.nsys.sqlite.database import Database
from nsight_prof.parsers.nsys.sqlite.schema import (
    CALL_KEY,
    GRAPH_TRACE,
    ISSUED_KEY,
    KERNEL,
    MEMCPY,
    MEMSET,
    NVTX,
    PROCESS,
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

SAMPLES = "GPU_METRICS"
TIMED = {NVTX, RUNTIME, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "OSRT_API", "COMPOSITE_EVENTS"}
"""Tables of what processes did, by its start."""


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


def keep_steps(path: Path, name: str, first: int, last: int) -> None:
    """Leave in an export the steps `first` to `last`: calls of all threads, and what they issued.

    Steps are the ranges called `name`, numbered from 1 by start. The file is changed in place. What
    has no time (names, devices, payload schemas, graphs) stays.

    Raises:
        ArtifactUnreadable: there are fewer such ranges, or the trace is damaged.
    """
    with _changed(path) as (connection, columns):
        text = "text"
        if "textId" in columns.get(NVTX, ()):
            text = f"coalesce(text, (SELECT value FROM {STRINGS} WHERE id = textId))"
        steps = connection.execute(
            f"SELECT start, end FROM {NVTX} WHERE {RANGES} AND end IS NOT NULL AND {text} = ? "
            "ORDER BY start LIMIT ?",
            (name, last),
        ).fetchall() if NVTX in columns else []  # fmt: skip
        if len(steps) < last:
            raise ArtifactUnreadable(
                f"{path} has {len(steps)} closed NVTX ranges {name!r}, and is to be cut to {first} "
                f"to {last}",
                "see ranks.window; without it, all of the program is kept",
            )
        begin, end = steps[first - 1][0], max(end for _, end in steps[first - 1 :])
        outside = "start < ? OR start >= ?"
        for table in TIMED & columns.keys():
            ranges = f"{RANGES} AND " if table == NVTX else ""
            connection.execute(f"DELETE FROM {table} WHERE {ranges}({outside})", (begin, end))
        for table in OPERATIONS:
            if table in columns:
                issued = f"SELECT {CALL_KEY} FROM {RUNTIME}"
                connection.execute(f"DELETE FROM {table} WHERE {ISSUED_KEY} NOT IN ({issued})")
        if SAMPLES in columns:
            span = f"SELECT min(start), max(end) FROM {KERNEL}"
            ((begin, end),) = connection.execute(span).fetchall()
            where = "timestamp < ? OR timestamp > ?"
            connection.execute(f"DELETE FROM {SAMPLES} WHERE {where}", (begin, end))


def processes(path: Path) -> list[int]:
    """Return the ids of the processes that launched kernels, by the lowest GPU of each.

    Raises:
        ArtifactUnreadable: the trace is damaged.
    """
    with _changed(path) as (connection, columns):
        if KERNEL not in columns:
            return []
        query = f"SELECT globalPid >> 24 & {PROCESS}, min(deviceId) FROM {KERNEL} GROUP BY 1"
        return [pid for pid, _ in connection.execute(f"{query} ORDER BY 2, 1")]


def keep_process(path: Path, pid: int) -> None:
    """Leave in an export what one process did; the file is changed in place.

    Raises:
        ArtifactUnreadable: the trace is damaged.
    """
    with _changed(path) as (connection, columns):
        for table, names in columns.items():
            for column in {"globalPid", "globalTid"} & names:
                condition = f'"{column}" >> 24 & {PROCESS} <> ?'
                connection.execute(f'DELETE FROM "{table}" WHERE {condition}', (pid,))


@contextmanager
def _changed(path: Path) -> Iterator[tuple[sqlite3.Connection, dict[str, set[str]]]]:
    """Open an export to change it, with the columns of its tables."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            columns: dict[str, set[str]] = {}
            for (table,) in names.fetchall():
                rows = connection.execute(f'PRAGMA table_info("{table}")')
                columns[table] = {column for _, column, *_ in rows}
            yield connection, columns
            connection.commit()
    except sqlite3.Error as error:
        raise ArtifactUnreadable(
            f"{path} is damaged: {error}",
            "export the report again: nsys export --type sqlite",
        ) from error
