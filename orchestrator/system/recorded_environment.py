"""Copies an exported trace without the environments of processes that nsys recorded.

nsys keeps more than the environment of the program that it traces: one block for each process of
the machine that it can see (prof, the shell that started it, unrelated programs of the user), as a
string `NAME=value<NUL>NAME=value…` that no table points to (seen from 2021.2 to 2026.1).
"""

from __future__ import annotations

import errno
import re
import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nsight_prof.orchestrator.system.secrets import redact_forms
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.nsys.sqlite.database import Database
from nsight_prof.parsers.reading import reading
from nsight_prof.parsers.whole_file import whole_file

HINT = "export the report again: nsys export --type=sqlite"
# Of the program alone; nsys before `--discard-environment` keeps it here too.
OF_THE_PROGRAM = {
    "TARGET_INFO_SYSTEM_ENV": "name LIKE '%Environment%'",
    "META_DATA_CAPTURE": "name LIKE '%ENVIRONMENT_VARIABLE%'",
}
# No name of a kernel, range or file has a NUL: a string with one is an environment.
BLOCK = "instr(CAST(value AS BLOB), x'00') > 0"
# A process with one variable gives a string without a NUL; so may an NVTX range be called: "b=8".
VARIABLE = re.compile(r"[A-Za-z_][\w.%()-]*=")
# Columns that hold ids of strings, by the comments `REFERENCES StringIds(id)` of real exports.
NAMES_A_STRING = re.compile(
    r"name|text|symbol|module|content|description|file|instruction|apiCallId", re.IGNORECASE
)

PAGE = 1 << 14
"""Bytes of a page of the copy: four times those of nsys, so that there are fewer to read."""
CACHE_KIB = 200
"""What SQLite keeps of either file: each page is read or written once, in the processor's cache."""


def drop_environments(sqlite: Path) -> None:
    """Put in the place of an exported trace its copy without environments; see `copy_export`."""
    with whole_file(sqlite) as copy:
        copy_export(sqlite, copy)


def copy_export(sqlite: Path, copy: Path) -> None:
    """Write the rows of an exported trace to `copy`, but for all recorded environments.

    Their strings are emptied and keep their rows, so that no id of another table loses its string.
    What looks like a secret on the recorded command line of the program is masked. Nothing else of
    the file is copied: no program (triggers, views, virtual tables), no index, which other tools
    add and which takes as much room as the rows, and no unused room of its pages, where
    environments may be that nsys itself moved.

    Raises:
        ArtifactUnreadable: the file is damaged, or no SQLite database.
    """
    Database(sqlite).close()  # looks at every page: reading one that is damaged might not end
    source = f"file:{quote(str(sqlite.resolve()))}?mode=ro&immutable=1"
    try:
        with (
            closing(sqlite3.connect(source, uri=True, isolation_level=None)) as database,
            reading(sqlite, "an SQLite file", HINT),
        ):
            database.execute("PRAGMA trusted_schema = OFF")
            database.text_factory = lambda data: data.decode("utf-8", errors="replace")
            database.create_function("redacted", 1, _redacted, deterministic=True)
            database.execute("ATTACH ? AS copy", [str(copy.absolute())])
            database.execute(f"PRAGMA copy.page_size = {PAGE}")
            database.execute("PRAGMA copy.journal_mode = OFF")
            for file in ("main", "copy"):
                database.execute(f"PRAGMA {file}.cache_size = -{CACHE_KIB}")
            database.execute("BEGIN")
            _copy_tables(database)
            database.execute("COMMIT")
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, "No space left on device", str(copy)) from error
        raise ArtifactUnreadable(f"{sqlite} is damaged: {error}", HINT) from error


def _copy_tables(database: sqlite3.Connection) -> None:
    query = (
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        " AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
    )
    tables = dict(database.execute(query).fetchall())
    values = {"META_DATA_CAPTURE": "redacted(value)"}
    if "StringIds" in tables:
        lone = str(sorted(_lone_variables(database, tables)))[1:-1]
        values["StringIds"] = f"CASE WHEN {BLOCK} OR id IN ({lone}) THEN '' ELSE value END"
    for table, definition in tables.items():
        database.execute(f"CREATE TABLE copy.{definition.removeprefix('CREATE TABLE ')}")
        columns = "*"  # which SQLite copies as they are, without looking into the rows
        if table in values:
            columns = ", ".join(
                values[table] if name == "value" else f'"{_quoted(name)}"'
                for name in _columns(database, table)
            )
        gone = OF_THE_PROGRAM.get(table)
        where = f"WHERE ({gone}) IS NOT TRUE" if gone else ""
        of = f'"{_quoted(table)}"'
        database.execute(f"INSERT INTO copy.{of} SELECT {columns} FROM main.{of} {where}")


def _redacted(value: Any) -> Any:
    return redact_forms(value) if isinstance(value, str) else value


def _lone_variables(database: sqlite3.Connection, tables: Collection[str]) -> set[int]:
    """Return the ids of strings `NAME=value` that nothing in the trace is called by."""
    query = "SELECT id, value FROM StringIds WHERE value GLOB '[A-Za-z_]*=*'"
    found = {number for number, value in database.execute(query) if VARIABLE.match(value)}
    for table in tables:
        if not found or table == "StringIds":
            continue
        for column in _columns(database, table):
            if NAMES_A_STRING.search(column):
                column, of = _quoted(column), _quoted(table)
                found -= {i for (i,) in database.execute(f'SELECT DISTINCT "{column}" FROM "{of}"')}
    return found


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    found = database.execute(f'PRAGMA main.table_info("{_quoted(table)}")').fetchall()
    return [str(name) for _, name, *_ in found]


def _quoted(name: str) -> str:
    return name.replace('"', '""')
