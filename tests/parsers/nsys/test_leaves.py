"""Rows that are read from the pages of a file are those that SQLite reads."""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.nsys.sqlite.database import Database
from nsight_prof.parsers.nsys.sqlite.leaves import Column
from nsight_prof.parsers.run.directory import decompress

DATABASE = "nsight_prof.parsers.nsys.sqlite.database"
ROOT = Path(__file__).resolve().parents[3]
REPOSITORY = {
    "gemm": "captures/h200-known-gemm/steps/1-trace/trace.sqlite.xz",
    "layers": "captures/compare/eager/steps/1-trace/trace.sqlite.xz",
    "engine": "tests/fixtures/vllm_nsys/spawned.sqlite.xz",
}
ACTIVITIES = ("KERNEL", "RUNTIME", "MEMCPY", "MEMSET", "GRAPH_TRACE")
LONG_TABLES = [*(f"CUPTI_ACTIVITY_KIND_{name}" for name in ACTIVITIES), "NVTX_EVENTS"]
# Of each size that a cell has in a file: none for 0 and 1, 1 to 8 bytes.
INTEGERS = st.one_of(
    st.sampled_from([0, 1, -1, 2]),
    *(st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 24, 32, 48, 64)),
)
TEXTS = st.text("abc_1é本\0", max_size=60)
LONG = st.one_of(st.integers(400, 530), st.integers(0, 9000)).map(lambda size: "x" * size)
FRACTIONS = st.floats(allow_nan=False).filter(lambda value: not value.is_integer())
OTHERS = {
    "fraction": st.floats(allow_nan=False).filter(lambda value: not value.is_integer()),
    "bytes": st.binary(max_size=9),
    "text": TEXTS,
    "long text": st.one_of(st.integers(400, 530), st.integers(0, 9000)).map(lambda n: "x" * n),
}
TYPES = (
    "INTEGER AS (a) STORED",
    "INTEGER AS (a)",
    "REAL",
    "TEXT",
    "",
    "INTEGER NOT NULL DEFAULT 5",
)
UNUSUAL = [*((cell, other) for cell in "abt" for other in OTHERS),
           *(("c", kind) for kind in TYPES), ("d", "added"), ("d", "UTF-16le")]  # fmt: skip


@st.composite
def rows(draw: st.DrawFn, cell: str = "", other: str = "") -> list[tuple[Any, ...]]:
    """Draw rows of numbers a and b and of text t as nsys writes them, but for one cell."""
    cells = {"a": INTEGERS, "b": st.one_of(st.none(), INTEGERS), "t": st.one_of(st.none(), TEXTS)}
    if cell in cells:
        cells[cell] = st.one_of(cells[cell], OTHERS[other])
    few = draw(st.lists(st.tuples(*cells.values()), max_size=9))
    return few * draw(st.sampled_from([1, 1, 30]))


def read(path: Path, columns: list[Column], table: str = "events") -> list[tuple[Any, ...]]:
    def cells(part: list[Any]) -> list[tuple[Any, ...]]:
        texts = [column.is_text for column in columns]
        lists = [
            values.cast(pa.string()).cast(pa.binary()) if is_text else values
            for values, is_text in zip(part, texts, strict=True)
        ]
        return [*zip(*(values.tolist() for values in lists), strict=True)]

    with closing(Database(path)) as db:
        return [row for part in db.scan(columns, table, cells) for row in part]


def by_sqlite(path: Path, columns: list[Column], table: str = "events") -> list[tuple[Any, ...]]:
    texts = {True: "coalesce(CAST([{}] AS TEXT), '')", False: "[{}]"}
    select = ", ".join(texts[column.is_text].format(column.name) for column in columns)
    with closing(sqlite3.connect(path)) as db:
        db.text_factory = bytes
        found = db.execute(f"SELECT {select} FROM {table}").fetchall()
    return [
        tuple(
            column.missing if cell is None and column.missing is not None else cell
            for cell, column in zip(row, columns, strict=True)
        )
        for row in found
    ]


def write(
    path: Path,
    page: int,
    definition: str,
    found: list[tuple[Any, ...]],
    encoding: str = "UTF-8",
) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA page_size = {page}")
        if encoding == "UTF-16le":
            db.execute(f"PRAGMA encoding = '{encoding}'")
        db.execute(f"CREATE TABLE events ({definition})")
        db.executemany("INSERT INTO events (a, b, t) VALUES (?, ?, ?)", found)
        db.commit()


COLUMNS = [Column("a"), Column("t", is_text=True), Column("b", -7)]
PAGES = st.sampled_from([512, 1024, 4096, 65536])


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(rows(), PAGES, st.integers(1, 7))
def test_rows_of_numbers_and_short_texts_are_read_without_sqlite(
    found: list[tuple[Any, ...]], page: int, every: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.sqlite"
        write(path, page, "x REAL, a INTEGER, t TEXT, y, b INTEGER", found)
        with closing(sqlite3.connect(path)) as db:  # numbers of rows get gaps, pages holes
            db.execute(f"UPDATE events SET rowid = rowid * 1000 WHERE rowid % {every} = 1")
            db.execute(f"DELETE FROM events WHERE rowid % {every} = 0")
            db.commit()
        with (
            mock.patch.object(Database, "_read_rows", side_effect=AssertionError),
            mock.patch(f"{DATABASE}.PART_BYTES", 2048),
        ):
            assert read(path, COLUMNS) == by_sqlite(path, COLUMNS)


@pytest.mark.parametrize(("column", "what"), UNUSUAL)
@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), PAGES, st.sampled_from(["INTEGER", ""]))
def test_what_is_not_usual_is_as_sqlite_has_it_or_refused(
    column: str, what: str, data: st.DataObject, page: int, kind: str
) -> None:
    found = data.draw(rows(column, what))
    kinds = {"c": "INTEGER", "a": kind, "b": kind, "t": "TEXT"}
    if column == "c":
        kinds |= {"c": what} if " " in what else {"a": what, "b": what}
    columns = [*COLUMNS, *([] if " AS " in what else [Column("c", -8)])]  # computed: not read
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.sqlite"
        write(path, page, ", ".join(map(" ".join, kinds.items())), found, what)
        if what == "added":
            with closing(sqlite3.connect(path)) as db:  # which leaves the rows as they are
                db.execute("ALTER TABLE events ADD COLUMN d INTEGER DEFAULT 9")
                db.commit()
            columns.append(Column("d", -3))
        expected = by_sqlite(path, columns)
        numbers = [at for at, column in enumerate(columns) if not column.is_text]
        with mock.patch(f"{DATABASE}.PART_BYTES", 1), mock.patch(f"{DATABASE}.PART_ROWS", 16):
            if all(isinstance(row[at], int) for row in expected for at in numbers):
                assert read(path, columns) == expected
            else:
                with pytest.raises(ArtifactUnreadable, match="without an integer in|is damaged"):
                    read(path, columns)


def test_numbers_behind_a_cell_that_goes_on_on_another_page(tmp_path: Path) -> None:
    columns = [Column("a"), Column("b")]
    # Beside one that fits: then the other may begin that early on its page.
    for lengths in [*((size, 475) for size in range(380, 460, 3)), (9, 20_000)]:
        path = tmp_path / f"{lengths}.sqlite"
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA page_size = 512")
            db.execute("CREATE TABLE events (y BLOB, a INTEGER, b INTEGER)")
            cells = [(b"x" * length, 1 << 20, 3) for length in lengths]
            db.executemany("INSERT INTO events VALUES (?, ?, ?)", cells)
            db.commit()
        assert read(path, columns) == [(1 << 20, 3)] * 2


@pytest.mark.parametrize("key", ["a", "b", "t"])
def test_a_key_may_be_the_number_of_the_row(key: str, tmp_path: Path) -> None:
    found = [(number, number * 1000, "x" * number) for number in range(1, 300)]
    path, types = tmp_path / "t.sqlite", {"a": "INTEGER", "b": "INTEGER", "t": "TEXT"}
    types[key] += " PRIMARY KEY"
    definition = ", ".join(" ".join(names) for names in types.items())
    write(path, 512, definition, found)
    assert read(path, COLUMNS) == [(a, t.encode(), b) for a, b, t in found]


@pytest.mark.parametrize("trace", sorted(REPOSITORY))
def test_all_cells_of_recorded_traces(trace: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite"
    decompress(ROOT / REPOSITORY[trace], path)
    check_all_cells(path)


def test_all_cells_of_real_exports(real_exports: Path) -> None:
    for path in sorted((real_exports / "nsys").rglob("*.sqlite")):
        check_all_cells(path)


def check_all_cells(path: Path) -> None:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        for table in LONG_TABLES:
            declared = db.execute(f"SELECT name, type FROM pragma_table_info('{table}')")
            columns = [
                Column(name, None if kind == "TEXT" else -9, is_text=kind == "TEXT")
                for name, kind in declared
                if kind != "REAL"
            ]
            if columns:
                assert read(path, columns, table) == by_sqlite(path, columns, table), table
