"""Cuts a trace down to what one NVTX range issued, as though nothing else had been recorded."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
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

    def cut(self, name: str, target: Path) -> None:
        """Write the calls in all ranges called `name`, and the GPU work that they issued.

        Args:
            name: text of an NVTX push/pop or start/end range that was closed.
            target: SQLite file to write; replaced where it exists.

        Raises:
            ArtifactUnreadable: there is no such range, or the trace is damaged.
        """
        target.unlink(missing_ok=True)
        try:
            with closing(sqlite3.connect(target)) as connection:
                source = f"file:{quote(str(self._path.resolve()))}?mode=ro&immutable=1"
                connection.execute("ATTACH ? AS source", (source,))
                self._write(connection, name)
                connection.commit()
        except sqlite3.Error as error:
            raise ArtifactUnreadable(
                f"{self._shown} is damaged: {error}",
                "copy the file again, or export the report again: nsys export --type sqlite",
            ) from error

    def _write(self, connection: sqlite3.Connection, name: str) -> None:
        text = "text"
        if self._has_text_id:
            text = f'coalesce(text, (SELECT value FROM source."{STRINGS}" WHERE id = textId))'
        nvtx = self._tables.get(NVTX)
        connection.execute("CREATE TEMP TABLE part (first, last, thread)")
        if nvtx:
            connection.execute(
                f'INSERT INTO part SELECT start, end, globalTid FROM source."{nvtx}" '
                f"WHERE {RANGES} AND end IS NOT NULL AND {text} = ?",
                (name,),
            )
        if not connection.execute("SELECT 1 FROM part").fetchone():
            raise ArtifactUnreadable(
                f"{self._shown} has no closed NVTX range {name!r}",
                "prof stages TRACE lists the ranges",
            )
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


@contextmanager
def open_cutter(path: Path) -> Iterator[Cutter]:
    """Open an nsys SQLite export (.sqlite or .sqlite.xz), strictly read only, to cut parts of it.

    Raises:
        ArtifactUnreadable: not a whole SQLite file.
    """
    with plain_file(path) as unpacked:
        yield Cutter(unpacked, path)
