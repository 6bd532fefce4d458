"""Takes out of prof's own copy of an SQLite export whatever is a program, before it is changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from nsight_prof.parsers.nsys.sqlite.database import Database
from nsight_prof.parsers.reading import reading

PROGRAMS = "type IN ('trigger', 'view') OR (type = 'table' AND coalesce(rootpage, 0) = 0)"
"""Triggers, views and virtual tables: nsys writes none, and they run when a table is changed."""


def keep_data(path: Path) -> None:
    """Leave plain tables and their indexes alone in the file `path`, which is changed.

    Raises:
        ArtifactUnreadable: no whole SQLite file.
    """
    Database(path).close()  # looks at every page: a damaged file is refused before it is changed
    with (
        reading(path, "an SQLite file", "copy the file again, or export the report again"),
        closing(sqlite3.connect(path)) as connection,
    ):
        connection.execute("PRAGMA journal_mode = MEMORY")
        if connection.execute(f"SELECT 1 FROM sqlite_master WHERE {PROGRAMS}").fetchone():
            connection.execute("PRAGMA writable_schema = ON")  # DROP would ask the programs
            connection.execute(f"DELETE FROM sqlite_master WHERE {PROGRAMS}")
            connection.commit()
