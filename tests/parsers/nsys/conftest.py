"""Writes small SQLite exports in the layout of nsys, with exactly the rows that a test names."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

VM = 1 << 48
COLUMNS = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER,"
    " shortName INTEGER, mangledName INTEGER, registersPerThread INTEGER, gridX INTEGER,"
    " gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,"
    " staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, eventClass INTEGER,"
    " globalTid INTEGER, correlationId INTEGER, nameId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, correlationId INTEGER,"
    " globalPid INTEGER, bytes INTEGER, copyKind INTEGER, deviceId INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER, end INTEGER, correlationId INTEGER,"
    " globalPid INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,"
    " endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, binaryData BLOB",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
}


def tid(process: int, thread: int) -> int:
    """globalTid as nsys packs it."""
    return VM | process << 24 | thread


@dataclass
class Export:
    """Rows of a trace to be written; `kernel` and the other methods add rows."""

    rows: dict[str, list[tuple[object, ...]]] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=lambda: dict(COLUMNS))
    suffix: str = ""

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings) + 1)

    def add(self, table: str, *row: object) -> None:
        self.rows.setdefault(table, []).append(row)

    def kernel(
        self,
        start: int = 100,
        duration: int = 10,
        name: str = "k",
        correlation: int = 1,
        process: int = 7,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (32, 1, 1),
        node: int | None = None,
        registers: int = 16,
        shared: tuple[int, int] = (0, 0),
        device: int = 0,
    ) -> None:
        names = (self.string(f"{name}()"), self.string(name), self.string(f"_Z{name}"))
        place = (device, 1, 7, correlation, tid(process, 0))
        launch = (registers, *grid, *block, *shared, node)
        row = (start, start + duration, *place, *names, *launch)
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", *row)

    def call(
        self,
        start: int = 10,
        duration: int = 5,
        correlation: int = 1,
        process: int = 7,
        thread: int = 7,
        name: str = "cudaLaunchKernel_v7000",
    ) -> None:
        row = (start, start + duration, 0, tid(process, thread), correlation, self.string(name))
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", *row)

    def range(
        self,
        start: int,
        end: int | None,
        name: str,
        *,
        thread: int = 7,
        process: int = 7,
        kind: int = 59,
        domain: int = 0,
        inline: bool = False,
        end_thread: int | None = None,
        payload: bytes | None = None,
    ) -> None:
        text = (name, None) if inline else (None, self.string(name))
        other = None if end_thread is None else tid(process, end_thread)
        row = (start, end, kind, text[0], tid(process, thread), other, text[1], domain)
        self.add("NVTX_EVENTS", *row, payload)

    def copy(
        self,
        start: int,
        duration: int,
        correlation: int,
        kind: int = 1,
        process: int = 7,
        device: int = 0,
    ) -> None:
        row = (start, start + duration, correlation, tid(process, 0), 1000, kind, device)
        self.add("CUPTI_ACTIVITY_KIND_MEMCPY", *row)

    def write(self, path: Path) -> Path:
        self.rows["StringIds"] = [(number, text) for text, number in self.strings.items()]
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA page_size = 512")  # so that few rows make several pages
            for table, rows in self.rows.items():
                name = table + (self.suffix if table.startswith(("CUPTI", "NVTX")) else "")
                columns = self.columns[table]
                db.execute(f"CREATE TABLE {name} ({columns})")
                kept = [c.split()[0] for c in columns.split(",")]
                order = [c.split()[0] for c in COLUMNS.get(table, columns).split(",")]
                places = [order.index(c) for c in kept]
                marks = ", ".join("?" * len(kept))
                data = [tuple(row[i] if i < len(row) else None for i in places) for row in rows]
                db.executemany(f"INSERT INTO {name} VALUES ({marks})", data)
        db.close()
        return path

    def without(self, table: str, column: str) -> "Export":
        kept = [c for c in self.columns[table].split(",") if c.split()[0] != column]
        self.columns[table] = ",".join(kept)
        return self


@pytest.fixture(scope="session")
def new_export() -> Callable[[], Export]:
    """Makes an empty export to add rows to."""
    return Export


@pytest.fixture
def export() -> Export:
    """An export with one launch of one kernel in a range `step`."""
    made = Export()
    made.kernel()
    made.call()
    made.range(5, 50, "step")
    return made
