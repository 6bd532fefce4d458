"""Opens an nsys SQLite export strictly read only and reads its columns as numpy arrays."""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import adbc_driver_sqlite.dbapi as sqlite
import pyarrow as pa
from numpy.typing import NDArray

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.nsys.sqlite.pages import Pages

WHAT = "an SQLite export of nsys"
HINT = "copy the file again, or export the report again: nsys export --type sqlite"
Array = NDArray[Any]
T = TypeVar("T")
PART_ROWS = 1 << 17  # rows a task reads: large enough to hide its start, small enough for memory
READERS = max(1, min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2))
_HEAP = 1 << 30  # bytes that SQLite may take: a cell may claim to be as long as this
_GROWTH = 100  # bytes in memory for one of the file, where rows are small integers
_MAGIC = b"SQLite format 3\x00"
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


@dataclass(frozen=True)
class Shortcut(Generic[T]):
    """A faster way to read those parts of a table in which `where` holds for all rows."""

    select: Sequence[str]
    where: str
    read_chunk: Callable[[list[Array]], T]


class Database:
    """One SQLite file, opened immutable: no lock, no journal, no change of a byte.

    Whatever the file holds, reading it ends: views, virtual tables and computed columns, which may
    hold a program, are not read, and no page is read twice. SQL here names the tables as `table`
    gives them. All columns that are read as numbers must be
    integers without NULL (`coalesce`), because the driver fixes types by the first rows.
    """

    def __init__(self, path: Path, label: Path | None = None) -> None:
        check_file(path)
        self.path = label or path
        self._bytes = path.stat().st_size
        self._uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        self._local = threading.local()
        self._connections: list[Any] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="nsys-sqlite")
        try:
            self._tables = self._plain_tables(path)
        except BaseException:
            self.close()
            raise
        self._columns: dict[str, frozenset[str]] = {}

    def close(self) -> None:
        """Close all connections."""
        self._pool.shutdown(cancel_futures=True)
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def table(self, name: str) -> str | None:
        """Name of the table in this file: plain or with the highest `_V<n>` suffix, or None."""
        if name in self._tables:
            return name
        version = re.compile(rf"{name}_V([0-9]{{1,6}})")
        versions = {
            found: int(match[1]) for found in self._tables if (match := version.fullmatch(found))
        }
        return max(versions, key=versions.__getitem__, default=None)

    def columns(self, name: str) -> frozenset[str]:
        """Columns of a table; empty where the file has no such table."""
        table = self.table(name)
        if table is None:
            return frozenset()
        if table not in self._columns:
            found = self.rows(f"SELECT name FROM pragma_table_info('{table}')")
            self._columns[table] = frozenset(str(column) for (column,) in found)
        return self._columns[table]

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
        self,
        select: Sequence[str],
        table: str,
        read_chunk: Callable[[list[Array]], T],
        where: str = "1",
        texts: Sequence[str] = (),
        shortcut: Shortcut[T] | None = None,
    ) -> Iterator[T]:
        """Read `select` of a long table in parts and give `part(columns)` of each, in row order.

        Those of `texts` are text, all others must be integers: operators of SQL, which make a
        number of a text without a word, are for the caller to leave out where that matters.

        Several parts are read and handed to `read_chunk` on threads; few are in memory at a time.
        As long as `shortcut` holds for all rows, they are read so.
        """
        is_short = [shortcut is not None]

        def columns(select: Sequence[str], read: pa.Table) -> list[Array]:
            return [
                self._array(column, table, name, is_text=name in texts)
                for name, column in zip(select, read.columns, strict=True)
            ]

        def task(first: int, last: int) -> T:
            source = f'FROM "{table}" WHERE rowid BETWEEN {first} AND {last} AND'
            if shortcut is not None and is_short[0]:
                read = self._query(f"SELECT {', '.join(shortcut.select)} {source} {shortcut.where}")
                if read.num_rows == last - first + 1:
                    return shortcut.read_chunk(columns(shortcut.select, read))
                is_short[0] = False
            read = self._query(f"SELECT {', '.join(select)} {source} {where}")
            return read_chunk(columns(select, read))

        ranges = [*self._rowid_ranges(table)]
        if len(ranges) == 1:  # a thread of its own would open the file once more
            yield task(*ranges[0])
            return
        waiting: deque[Future[T]] = deque()
        try:
            for first, last in ranges:
                waiting.append(self._pool.submit(task, first, last))
                if len(waiting) > READERS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

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

    def _plain_tables(self, path: Path) -> frozenset[str]:
        """Names of the tables that are data and nothing else, after a walk over all pages."""
        try:
            with closing(Pages(path)) as pages:
                pages.walk(1)
                of_roots = "SELECT type, name, rootpage FROM sqlite_master WHERE rootpage > 0"
                found = self.rows(of_roots)
                for _, _, root in found:
                    pages.walk(root)
        except ValueError as error:
            raise ArtifactUnreadable(
                f"{self.path} is damaged: {error}",
                "copy the file again, or export the report again: nsys export --type sqlite",
            ) from error
        return frozenset(str(name) for kind, name, _ in found if kind == "table")

    def _ends(self, table: str) -> tuple[int, int]:
        """First and last rowid; (0, -1) of an empty table."""
        # In one SELECT, min and max would read the whole table.
        ends = (f'(SELECT {end}(rowid) FROM "{table}")' for end in ("min", "max"))
        ((first, last),) = self.rows(f"SELECT {', '.join(ends)}")
        return (0, -1) if first is None else (first, last)

    def _array(
        self, column: pa.ChunkedArray, table: str, expression: str, *, is_text: bool
    ) -> Array:
        if pa.types.is_integer(column.type) and not column.null_count:
            return column.to_numpy()  # type: ignore[no-any-return]
        if is_text and pa.types.is_string(column.type):
            text: Array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            return text
        names = [name for name in re.findall(r"\w+", expression) if name in self.columns(table)]
        raise ArtifactUnreadable(
            f"{self.path}: table {table} has rows without an integer in {' or '.join(names)}",
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
            raise ArtifactUnreadable(
                f"{self.path} is damaged: {_reason(error)}",
                "copy the file again, or export the report again: nsys export --type sqlite",
            ) from error

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


def _reason(error: BaseException) -> str:
    return str(error).splitlines()[0]


def as_python(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Values of a column; text that is no UTF-8 gets replacement marks."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    values = column.to_pylist()
    return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values]
