"""Opens an nsys SQLite export strictly read only and reads its columns as numpy arrays."""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import adbc_driver_sqlite.dbapi as sqlite
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.nsys.sqlite.leaves import Column, Leaves, Unusual
from nsight_prof.parsers.nsys.sqlite.pages import Pages

WHAT = "an SQLite export of nsys"
HINT = "copy the file again, or export the report again: nsys export --type sqlite"
Array = NDArray[Any]
T = TypeVar("T")
PART_BYTES = 1 << 22  # bytes of pages a task reads: so few that they stay in the cache
PART_ROWS = 1 << 17  # rows that SQLite reads at a time
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
READERS = min(4, CORES)  # fewer where several processes read
_HEAP = 1 << 30  # bytes that SQLite may take: a cell may claim to be as long as this
_GROWTH = 100  # bytes in memory for one of the file, where rows are small integers
_FRACTION = re.compile("REAL|FLOA|DOUB", re.IGNORECASE)  # types of columns of fractions
_MAGIC = b"SQLite format 3\x00"
_WALKED: dict[tuple[int, ...], dict[str, Array]] = {}
"""Pages of the tables of the last file that was walked, by what tells whether it was changed."""
_EXPORT_HINT = "export it first: nsys export --type sqlite --force-overwrite=true -o trace.sqlite "


def check_file(path: Path) -> None:
    """Refuse what is no whole SQLite file.

    Raises:
        ArtifactUnreadable: absent, empty, a git LFS pointer, a report, not SQLite, or truncated.
    """
    if path.suffix in (".nsys-rep", ".qdrep"):
        raise ArtifactUnreadable(
            f"{path} is an Nsight Systems report, not its SQLite export", f"{_EXPORT_HINT}{path}"
        )
    try:
        with path.open("rb") as stream:
            head = stream.read(200)
            size = os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise ArtifactUnreadable(
            f"{path} cannot be read: {error.strerror}", "name an existing SQLite export of nsys"
        ) from error
    if not head:
        raise ArtifactUnreadable(
            f"{path} is empty", "the export failed, often for a full disk; export the report again"
        )
    if head.startswith(b"version https://git-lfs"):
        raise ArtifactUnreadable(
            f"{path} is a git LFS pointer, not the file itself", "fetch it: git lfs pull"
        )
    if not head.startswith(_MAGIC):
        raise ArtifactUnreadable(f"{path} is not an SQLite file", f"{_EXPORT_HINT}trace.nsys-rep")
    _check_length(path, head, size)


def _check_length(path: Path, head: bytes, size: int) -> None:
    page = int.from_bytes(head[16:18], "big")
    expected = (65536 if page == 1 else page) * int.from_bytes(head[28:32], "big")
    # https://www.sqlite.org/fileformat.html: the page count holds when both counters agree.
    if len(head) < 100 or (head[24:28] == head[92:96] and size < expected):
        raise ArtifactUnreadable(
            f"{path} is truncated: {size} of {expected} bytes",
            "copy the file again, or export the report again",
        )


class Database:
    """One SQLite file, opened immutable: no lock, no journal, no change of a byte.

    Whatever the file holds, reading it ends: views, virtual tables and computed columns, which may
    hold a program, are not read, and no page is read twice. SQL here names the tables as `table`
    gives them.
    """

    def __init__(self, path: Path, label: Path | None = None) -> None:
        check_file(path)
        self.path = label or path
        self._bytes = path.stat().st_size
        self._uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        self._leaves = Leaves(path)
        self._local = threading.local()
        self._connections: list[Any] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="nsys-sqlite")
        try:
            self._pages = self._walk(path)
        except BaseException:
            self.close()
            raise
        self._declared: dict[str, list[tuple[Any, ...]]] = {}

    def close(self) -> None:
        """Close all connections."""
        self._pool.shutdown(cancel_futures=True)
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._leaves.close()

    def table(self, name: str) -> str | None:
        """Name of the table in this file: plain or with the highest `_V<n>` suffix, or None."""
        if name in self._pages:
            return name
        version = re.compile(rf"{name}_V([0-9]{{1,6}})")
        versions = {
            found: int(match[1]) for found in self._pages if (match := version.fullmatch(found))
        }
        return max(versions, key=versions.__getitem__, default=None)

    def columns(self, name: str) -> frozenset[str]:
        """Columns of a table; empty where the file has no such table."""
        table = self.table(name)
        if table is None:
            return frozenset()
        return frozenset(column for column, _, _, hidden in self._declaration(table) if not hidden)

    def has_rows(self, name: str) -> bool:
        """Whether the table exists and is not empty (nsys --lazy=false writes empty tables)."""
        table = self.table(name)
        return table is not None and bool(self.rows(f'SELECT 1 FROM "{table}" LIMIT 1'))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return a small result as Python tuples; text that is no UTF-8 gets replacement marks."""
        result = self._query(query)
        columns = [as_python(column) for column in result.columns]
        return list(zip(*columns, strict=True)) if columns else []

    def scan(
        self, columns: Sequence[Column], table: str, read_chunk: Callable[[list[Any]], T]
    ) -> Iterator[T]:
        """Read columns of a long table in parts; yield `read_chunk(part)` of each, in row order.

        Numbers come as integers of 64 bits, texts as dictionaries. A column that the table lacks is
        `missing` in all rows. Several parts are read and handed to `read_chunk` on threads; few are
        in memory at a time.
        """
        present = [column for column in columns if column.name in self.columns(table)]

        def task(read: Callable[[], list[Any]]) -> T:
            found = dict(zip(present, read(), strict=True))
            rows = len(found[present[0]])
            return read_chunk(
                [
                    found[column]
                    if column in found
                    else np.broadcast_to(np.int64(column.missing or 0), rows)
                    for column in columns
                ]
            )

        tasks = [*self._reads(table, present)]
        # A thread of its own opens the file once more, and takes turns with this one on one core.
        if len(tasks) == 1 or READERS == 1:
            yield from map(task, tasks)
            return
        waiting: deque[Future[T]] = deque()
        try:
            for read in tasks:
                waiting.append(self._pool.submit(task, read))
                if len(waiting) > READERS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _reads(self, table: str, columns: Sequence[Column]) -> Iterable[Callable[[], list[Any]]]:
        """Yield what reads each part of a table: its pages, or else rows by SQLite."""
        pages, numbers = self._pages[table], self._numbers(table)
        if not len(pages) or not all(column.name in numbers for column in columns):
            return [
                partial(self._read_rows, table, columns, *ends)
                for ends in self._rowid_ranges(table)
            ]
        numbered = [(numbers[column.name], column) for column in columns]
        step = max(1, PART_BYTES // self._leaves.size)
        return [
            partial(self._read_pages, table, numbered, pages[at : at + step])
            for at in range(0, len(pages), step)
        ]

    def _read_pages(
        self, table: str, numbered: Sequence[tuple[int, Column]], pages: Array
    ) -> list[Any]:
        try:
            return self._leaves.read(pages, numbered)
        except Unusual:
            columns = [column for _, column in numbered]
            try:
                ends = self._leaves.ends(pages)
            except Unusual as error:
                raise self._damaged(error) from error
            return self._read_rows(table, columns, *ends)

    def _read_rows(self, table: str, columns: Sequence[Column], first: int, last: int) -> list[Any]:
        select = ", ".join(_selected(column) for column in columns)
        where = f"rowid BETWEEN {first} AND {last}"
        read = self._query(f'SELECT {select} FROM "{table}" WHERE {where}')
        found = zip(columns, read.columns, strict=True)
        return [self._array(values, table, column) for column, values in found]

    def _declaration(self, table: str) -> list[tuple[Any, ...]]:
        """Name, type, place in the primary key and kind of each column, in their order."""
        if table not in self._declared:
            declared = f"SELECT name, type, pk, hidden FROM pragma_table_xinfo('{table}')"
            self._declared[table] = self.rows(declared)
        return self._declared[table]

    def _numbers(self, table: str) -> dict[str, int]:
        """Number of each column whose cells in the file are what SQLite gives.

        A key may be the number of the row, and fractions may be stored as integers.
        """
        declared = self._declaration(table)
        if any(hidden for *_, hidden in declared):  # those that are computed may be no cells
            return {}
        return {
            name: number
            for number, (name, kind, key, _) in enumerate(declared)
            if not key and not _FRACTION.search(kind)
        }

    def most_rows(self, table: str) -> int:
        """A bound of the rows of a table, without reading it."""
        first, last = self._ends(table)
        return min(last - first + 1, self._bytes)  # a row takes some bytes

    def _rowid_ranges(self, table: str) -> Iterable[tuple[int, int]]:
        """First and last rowid of each part of a table."""
        first, last = self._ends(table)
        if last - first < self._bytes:
            starts = range(first, last + 1, PART_ROWS)
            return [(at, min(at + PART_ROWS - 1, last)) for at in starts]
        # Few rows with numbers far apart.
        numbered = f'SELECT rowid AS id, row_number() OVER (ORDER BY rowid) AS n FROM "{table}"'
        ranges = f"SELECT min(id), max(id) FROM ({numbered}) GROUP BY (n - 1) / {PART_ROWS}"
        return [(first, last) for first, last in sorted(self.rows(ranges))]

    def _walk(self, path: Path) -> dict[str, Array]:
        """Pages of the tables that are data and nothing else, after a walk over all pages.

        An import opens a file it has made three times: one that is as it was is not walked again.
        """
        facts = path.stat()
        state = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        found = _WALKED.get(state)
        if found is None:
            found = self._walk_all(path)
            _WALKED.clear()
            _WALKED[state] = found
        return found

    def _walk_all(self, path: Path) -> dict[str, Array]:
        try:
            with closing(Pages(path)) as pages:
                pages.walk(1)
                of_roots = "SELECT type, name, rootpage FROM sqlite_master WHERE rootpage > 0"
                found = self.rows(of_roots)
                of_each = [pages.walk(root) for _, _, root in found]
        except ValueError as error:
            raise self._damaged(error) from error
        return {
            str(name): leaves
            for (kind, name, _), leaves in zip(found, of_each, strict=True)
            if kind == "table"
        }

    def _ends(self, table: str) -> tuple[int, int]:
        """First and last rowid; (0, -1) of an empty table."""
        # In one SELECT, min and max would read the whole table.
        ends = (f'(SELECT {end}(rowid) FROM "{table}")' for end in ("min", "max"))
        ((first, last),) = self.rows(f"SELECT {', '.join(ends)}")
        return (0, -1) if first is None else (first, last)

    def _array(self, values: pa.ChunkedArray, table: str, column: Column) -> Any:
        if column.is_text:  # without rows it is of another type
            return values.cast(pa.string()).combine_chunks().dictionary_encode()
        if pa.types.is_integer(values.type) and not values.null_count:
            return values.to_numpy()
        raise ArtifactUnreadable(
            f"{self.path}: table {table} has rows without an integer in {column.name}",
            "export the report again: nsys export --type sqlite",
        )

    def _query(self, query: str) -> pa.Table:
        try:
            with self._connection().cursor(
                adbc_stmt_kwargs={"adbc.sqlite.query.batch_rows": PART_ROWS}
            ) as cursor:
                cursor.execute(query)
                return self._bounded(cursor.fetch_record_batch())
        except (sqlite.Error, pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: BaseException) -> ArtifactUnreadable:
        return ArtifactUnreadable(
            f"{self.path} is damaged: {str(error).splitlines()[0]}",
            "copy the file again, or export the report again: nsys export --type sqlite",
        )

    def _bounded(self, batches: pa.RecordBatchReader) -> pa.Table:
        """Read all batches, unless they are longer than the file can be."""
        found, taken = [], 0
        for batch in batches:
            taken += batch.nbytes
            if taken > _HEAP + _GROWTH * self._bytes:
                raise pa.ArrowInvalid("its rows are longer than the file")
            found.append(batch)
        return pa.Table.from_batches(found, batches.schema)

    def _connection(self) -> Any:
        if not hasattr(self._local, "connection"):
            self._local.connection = sqlite.connect(self._uri)
            self._connections.append(self._local.connection)
            with self._local.connection.cursor() as cursor:
                for setting in ("trusted_schema = OFF", f"hard_heap_limit = {_HEAP}"):
                    cursor.execute(f"PRAGMA {setting}")
        return self._local.connection


def _selected(column: Column) -> str:
    """SQL of a column, with what stands for rows without a value."""
    if column.is_text:
        return f"""coalesce(CAST("{column.name}" AS TEXT), '')"""
    name = f'"{column.name}"'
    return name if column.missing is None else f"coalesce({name}, {column.missing})"


def as_python(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Values of a column; text that is no UTF-8 gets replacement marks."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    values = column.to_pylist()
    return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values]
