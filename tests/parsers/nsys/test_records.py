"""Columns that are taken from SQLite's pages, held to what SQLite says of the same rows."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.nsys.sqlite import database
from nsight_prof.parsers.nsys.sqlite.database import Database

NULL = -(2**63)
WIDTHS = [0, 1, -1, 127, -128, 40_000, 2**23 - 1, -(2**31), 2**40, 2**47, -(2**63), 2**63 - 1, None]


def write(path: Path, rows: list[tuple[int | None, str | None, int | None]], page: int) -> None:
    """Write a table whose rows begin far below 0, so that their numbers take 1 to 9 bytes."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {page}")
        db.execute("CREATE TABLE events (start INTEGER, text TEXT, last INTEGER)")
        db.execute("BEGIN")
        query = "INSERT INTO events (rowid, start, text, last) VALUES (?, ?, ?, ?)"
        numbers = (n**5 - 9_000_000_000 for n in range(len(rows)))
        db.executemany(query, ((n, *row) for n, row in zip(numbers, rows, strict=True)))
        db.execute("COMMIT")


def read(path: Path, parts: list[int]) -> list[tuple[int, bytes, int, int]]:
    """Return the rows as `columns_of` gives them, and note how many each part has."""

    def chunk(columns: list[Any]) -> list[tuple[int, bytes, int, int]]:
        parts.append(len(columns[0]))
        return list(zip(*(column.tolist() for column in columns), strict=True))

    columns = {"start": NULL, "last": NULL, "absent": 7}
    with closing(Database(path)) as db:
        found = [row for rows in db.columns_of("events", columns, chunk, "text") for row in rows]
    return [(start, text, last, absent) for start, last, absent, text in found]


def expected(path: Path) -> list[tuple[int, bytes, int, int]]:
    query = (
        f"SELECT coalesce(start, {NULL}), CAST(coalesce(text, '') AS BLOB), "
        f"coalesce(last, {NULL}), 7 FROM events ORDER BY rowid"
    )
    with closing(sqlite3.connect(path)) as db:
        return list(db.execute(query))


@pytest.mark.parametrize("page", [512, 4096, 65536])
@pytest.mark.parametrize("longest", [0, 90, 700])
def test_columns_are_those_of_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int, longest: int
) -> None:
    """Also where a text goes on in other pages, as of 512 bytes with `longest` 700."""
    rng = random.Random(page + longest)
    rows = [
        (rng.choice(WIDTHS), rng.choice([None, "é" * rng.randint(0, longest // 2)]), n)
        for n in range(700)
    ]
    write(tmp_path / "trace.sqlite", rows, page)
    monkeypatch.setattr(database, "PART_BYTES", 4 * page)
    monkeypatch.setattr(database, "PART_ROWS", 50)
    parts: list[int] = []
    assert read(tmp_path / "trace.sqlite", parts) == expected(tmp_path / "trace.sqlite")
    assert max(parts) <= 50


def test_sqlite_is_not_asked_for_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "trace.sqlite", [(n, f"range {n}", None) for n in range(1000)], 4096)
    asked: list[str] = []
    query = Database._query

    def noted(db: Database, words: str) -> pa.Table:
        asked.append(words)
        return query(db, words)

    monkeypatch.setattr(Database, "_query", noted)
    assert len(read(tmp_path / "trace.sqlite", [])) == 1000
    assert not [words for words in asked if 'FROM "events"' in words]


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        ("ALTER TABLE events ADD COLUMN later INTEGER DEFAULT 5", ["later"]),
        ("UPDATE events SET start = 1.5 WHERE rowid % 2", ["last"]),
        ("CREATE TABLE keyed (id INTEGER PRIMARY KEY, v); INSERT INTO keyed SELECT NULL, last "
         "FROM events; DROP TABLE events; ALTER TABLE keyed RENAME TO events", ["id", "v"]),
        ("ALTER TABLE events ADD COLUMN twice INTEGER AS (last * 2) VIRTUAL", ["twice", "last"]),
    ],
)  # fmt: skip
def test_what_pages_do_not_tell_is_of_sqlite(
    tmp_path: Path, change: str, columns: list[str]
) -> None:
    """Columns that were added later, are the numbers of rows, or are worked out."""
    path = tmp_path / "trace.sqlite"
    write(path, [(n, "x", 3 * n) for n in range(300)], 4096)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(change)
        of_sqlite = db.execute(f"SELECT {', '.join(columns)} FROM events").fetchall()
    with closing(Database(path)) as db:
        read = db.columns_of("events", dict.fromkeys(columns), lambda found: np.stack(found).T)
        found = np.concatenate(list(read))
    assert [tuple(row) for row in found.tolist()] == of_sqlite


@pytest.mark.parametrize("value", [1.5, "text", None])
def test_a_column_that_holds_no_number_is_refused(tmp_path: Path, value: object) -> None:
    path = tmp_path / "trace.sqlite"
    write(path, [(n, "x", n) for n in range(300)], 4096)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE events SET start = ? WHERE last = 100", [value])
        db.commit()
    with closing(Database(path)) as db, pytest.raises(ArtifactUnreadable, match="without an integ"):
        list(db.columns_of("events", {"start": None}, list))
