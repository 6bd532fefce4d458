"""Deletes from an exported trace the environments of processes that nsys recorded.

nsys keeps more than the environment of the program that it traces: one block for each process of
the machine that it can see (prof, the shell that started it, unrelated programs of the user), as a
string `NAME=value<NUL>NAME=value…` that no table points to (seen from 2021.2 to 2026.1).
"""

from __future__ import annotations

import contextlib
import errno
import re
import sqlite3
from pathlib import Path
from typing import Any

from nsight_prof.orchestrator.system.secrets import redact_forms
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.whole_file import whole_file

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


def drop_environments(sqlite: Path) -> int:
    """Delete all recorded environments from an exported trace; return how many entries it had.

    Strings are emptied and keep their rows, so that no id of another table loses its string. What
    looks like a secret on the recorded command line of the program is masked.

    Raises:
        ArtifactUnreadable: the file is damaged, or no SQLite database.
    """
    try:
        with (
            contextlib.closing(sqlite3.connect(sqlite)) as database,
            whole_file(sqlite) as copy,
        ):
            # What is deleted must not be copied to a journal file.
            database.execute("PRAGMA journal_mode = MEMORY")
            database.execute("PRAGMA trusted_schema = OFF")
            database.text_factory = lambda data: data.decode("utf-8", errors="replace")
            dropped = _drop(database)
            database.commit()
            # Unused room of the pages still holds them, also those that nsys itself moved.
            database.execute("VACUUM INTO ?", [str(copy)])
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, "No space left on device", str(sqlite)) from error
        raise ArtifactUnreadable(
            f"{sqlite} is damaged: {error}", "export the report again: nsys export --type=sqlite"
        ) from error
    return dropped


def _drop(database: sqlite3.Connection) -> int:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = [str(name) for (name,) in database.execute(query)]
    dropped = 0
    for table, condition in OF_THE_PROGRAM.items():
        if table in tables:
            dropped += database.execute(f'DELETE FROM "{table}" WHERE {condition}').rowcount
    if "META_DATA_CAPTURE" in tables:
        database.create_function("redacted", 1, _redacted, deterministic=True)
        database.execute("UPDATE META_DATA_CAPTURE SET value = redacted(value)")
    if "StringIds" in tables:
        dropped += database.execute(f"UPDATE StringIds SET value = '' WHERE {BLOCK}").rowcount
        lone = [(number,) for number in _lone_variables(database, tables)]
        database.executemany("UPDATE StringIds SET value = '' WHERE id = ?", lone)
        dropped += len(lone)
    return dropped


def _redacted(value: Any) -> Any:
    return redact_forms(value) if isinstance(value, str) else value


def _lone_variables(database: sqlite3.Connection, tables: list[str]) -> set[int]:
    """Return the ids of strings `NAME=value` that nothing in the trace is called by."""
    query = "SELECT id, value FROM StringIds WHERE value GLOB '[A-Za-z_]*=*'"
    found = {number for number, value in database.execute(query) if VARIABLE.match(value)}
    for table in tables:
        if not found or table == "StringIds":
            continue
        for _, column, *_ in database.execute(f'PRAGMA table_info("{_quoted(table)}")').fetchall():
            if NAMES_A_STRING.search(column):
                column, of = _quoted(column), _quoted(table)
                found -= {i for (i,) in database.execute(f'SELECT DISTINCT "{column}" FROM "{of}"')}
    return found


def _quoted(name: str) -> str:
    return name.replace('"', '""')
