"""Writes the GPU work of a torch profiler's trace as an export of Nsight Systems has it.

Kernels, copies, memsets and CUDA calls of both tools come from CUPTI, ranges from the program: one
reader gives both their stages, idle times and timeline.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.nsys.sqlite import schema
from nsight_prof.parsers.torch.events import Event, read_events

TOOL = "torch profiler"
_BATCH = 10_000
_THREAD = 0xFFFFFF
"""Bits of a thread's id in globalTid; Kineto gives some threads the handle of pthread."""
_RANGE, _NO_PROCESS = 59, 0
_COPY_KINDS = {"HtoD": 1, "DtoH": 2, "HtoA": 3, "AtoH": 4, "AtoA": 5, "AtoD": 6, "DtoA": 7,
               "DtoD": 8, "HtoH": 9, "PtoP": 10}  # fmt: skip
_COPY = re.compile(r"Memcpy (\w+)")
_TABLES = {
    schema.STRINGS: "id value",
    schema.KERNEL: "start end deviceId contextId streamId correlationId globalPid demangledName "
    "shortName registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory "
    "dynamicSharedMemory graphNodeId",
    schema.MEMCPY: "start end deviceId contextId streamId correlationId globalPid bytes copyKind",
    schema.MEMSET: "start end deviceId contextId streamId correlationId globalPid bytes",
    schema.RUNTIME: "start end eventClass globalTid correlationId nameId",
    schema.NVTX: "start end eventType globalTid endGlobalTid textId domainId text",
    schema.GPU: "id name computeMajor computeMinor smCount totalMemory",
    schema.SESSION: "utcEpochNs",
}
_CALLS = ("cuda_runtime", "cuda_driver")


@dataclass
class Written:
    """What an export was made of: its kernels, and the versions that the trace names."""

    kernels: int = 0
    versions: dict[str, str] = field(default_factory=dict)


def write_export(source: Path, target: Path) -> Written:
    """Write `source`, a Kineto chrome trace (.json, .gz, .xz), as the SQLite file `target`.

    Times are ns from the first event. A trace without kernels is written all the same.

    Raises:
        ArtifactUnreadable: the file is damaged or no trace of a torch profiler.
    """
    facts: dict[str, Any] = {}
    try:
        low = min((_ns(event["ts"]) for event in _timed(read_events(source, facts))), default=0)
        rows = _Rows(low, _process(read_events(source)))
        with sqlite3.connect(target) as db:
            for name, columns in _TABLES.items():
                db.execute(f'CREATE TABLE "{name}" ({", ".join(columns.split())})')
            events = _timed(read_events(source))
            while batch := list(islice(events, _BATCH)):
                rows.add(batch)
                rows.flush(db)
            rows.finish(facts)
            rows.flush(db)
        db.close()
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, sqlite3.Error) as error:
        raise ArtifactUnreadable(
            f"{source} has an event that is not as the torch profiler writes it: {error!r}",
            "record it again with a released torch (2.4 or newer)",
        ) from error
    names = {"cupti_version": "cupti", "cuda_runtime_version": "torch_cuda_runtime"}
    versions = {name: str(facts[key]) for key, name in names.items() if facts.get(key)}
    return Written(rows.kernels, versions)


def _ns(microseconds: Any) -> int:
    return round(float(microseconds) * 1000)


def _timed(events: Iterable[Event]) -> Iterator[Event]:
    return (e for e in events if e.get("ph") == "X" and isinstance(e.get("pid"), int))


def _process(events: Iterable[Event]) -> int:
    """The process of the trace: on events of the GPU, `pid` is the device."""
    host = (e["pid"] for e in _timed(events) if e.get("cat") in (*_CALLS, "cpu_op"))
    return next(host, _NO_PROCESS)


class _Rows:
    """Rows that wait to be written, by table."""

    def __init__(self, low: int, process: int) -> None:
        self.kernels = 0
        self._low, self._process = low, (process & _THREAD) << 24
        self._strings: dict[str, int] = {}
        self._threads: dict[int, int] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _TABLES}

    def add(self, events: Iterable[Event]) -> None:
        """Take what of `events` an export has."""
        for event in events:
            kind = str(event.get("cat"))
            if kind in ("kernel", "gpu_memcpy", "gpu_memset"):
                self._add_work(kind, event, event.get("args") or {})
            elif kind in _CALLS:
                number = (event.get("args") or {}).get("correlation")
                name = self._text(event["name"])
                self._put(schema.RUNTIME, event, 0, self._thread(event), number, name)
            elif kind == "user_annotation":
                thread, domain = self._thread(event), None
                name = self._text(event["name"])
                self._put(schema.NVTX, event, _RANGE, thread, None, name, domain, None)

    def finish(self, facts: dict[str, Any]) -> None:
        """Add the names, the GPUs and when it began."""
        self._rows[schema.STRINGS] = [(n, text) for text, n in self._strings.items()]
        keys = ("id", "name", "computeMajor", "computeMinor", "numSms", "totalGlobalMem")
        self._rows[schema.GPU] = [
            tuple(gpu.get(key) for key in keys) for gpu in facts.get("deviceProperties") or ()
        ]
        if isinstance(base := facts.get("baseTimeNanoseconds"), int) and base > 0:
            self._rows[schema.SESSION] = [(base + self._low,)]

    def flush(self, db: sqlite3.Connection) -> None:
        """Write and forget the rows."""
        for name, rows in self._rows.items():
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                db.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
                rows.clear()

    def _add_work(self, kind: str, event: Event, args: dict[str, Any]) -> None:
        places = [int(args.get(key) or 0) for key in ("device", "context", "stream")]
        issued = (*places, args.get("correlation"), self._process)
        if kind == "gpu_memset":
            self._put(schema.MEMSET, event, *issued, args.get("bytes"))
        elif kind == "gpu_memcpy":
            found = _COPY.match(str(event["name"]))
            direction = _COPY_KINDS.get(found[1], 0) if found else 0
            self._put(schema.MEMCPY, event, *issued, args.get("bytes"), direction)
        else:
            self.kernels += 1
            name = self._text(event["name"])
            shape = [*(args.get("grid") or (0, 0, 0)), *(args.get("block") or (0, 0, 0))]
            registers, shared = args.get("registers per thread"), args.get("shared memory")
            node = args.get("graph node id") or None
            resources = (int(registers or 0), *map(int, shape), int(shared or 0), 0, node)
            self._put(schema.KERNEL, event, *issued, name, name, *resources)

    def _put(self, table: str, event: Event, *cells: Any) -> None:
        start = _ns(event["ts"]) - self._low
        self._rows[table].append((start, start + _ns(event["dur"]), *cells))

    def _text(self, text: Any) -> int:
        return self._strings.setdefault(str(text), len(self._strings) + 1)

    def _thread(self, event: Event) -> int:
        thread = event["tid"]
        number = thread if isinstance(thread, int) and 0 <= thread <= _THREAD else None
        if number is None:
            number = _THREAD - self._threads.setdefault(thread, len(self._threads))
        return self._process | number
