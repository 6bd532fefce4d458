"""What the host did, event by event: CUDA API calls, NVTX ranges and marks, with their threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.names.ranges import label
from nsight_prof.parsers.nsys.rows.nvtx import TEXT, coded_names, range_names
from nsight_prof.parsers.nsys.rows.summaries import ABI_VERSION, first_of_each
from nsight_prof.parsers.nsys.sqlite.codes import Codebook, Columns, factor, short
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.schema import NVTX, OPEN_END, RUNTIME, read_strings

PUSH_POP, START_END, MARK = "push/pop", "start/end", "mark"
# NvtxMark, NvtxPushPop and NvtxStartEnd of nsys, and the last two of its NVTX text files.
_KINDS = {34: MARK, 59: PUSH_POP, 60: START_END, 70: PUSH_POP, 71: START_END}
_ID = _NO_ID = 0xFFFFFFFF
_THREAD, _PID = 0xFFFFFF, 24  # globalTid: 24 bits of the thread, above them 24 of the process


@dataclass(frozen=True)
class Thread:
    """A thread of the traced program; `name` is empty where the export does not tell it."""

    pid: int
    tid: int
    name: str


@dataclass
class ApiCalls:
    """CUDA API calls in the order of the file; times in ns from the start of the capture.

    `thread` is a code into the threads, `name` into `names`. `call` is what an operation that the
    call issued has in common with it: `call_key` of its process and correlation id.
    """

    start: Array
    duration: Array
    thread: Array
    name: Array
    call: Array
    names: list[str]


@dataclass
class NvtxEvents:
    """Ranges and marks in the order of the file.

    `end` is OPEN_END for a range that was not closed; for a mark it says nothing. `kind` is a code
    into `kinds`, `name` into `names` (`domain:text`, or the text alone).
    """

    start: Array
    end: Array
    thread: Array
    name: Array
    kind: Array
    names: list[str]
    kinds: tuple[str, ...] = (PUSH_POP, START_END, MARK)


@dataclass
class HostEvents:
    """All events of the host; `processes` are the names of those that the export names."""

    calls: ApiCalls
    nvtx: NvtxEvents
    threads: list[Thread]
    processes: dict[int, str]


def call_key(pid: Array, correlation: Array) -> Array:
    """What a call and the operations that it issued share: process and 32-bit correlation id."""
    key: Array = (pid.astype(np.int64) & _THREAD) << 32 | correlation.astype(np.int64) & _ID
    return key


def read_host_events(db: Database) -> HostEvents:
    """Read every CUDA API call and every NVTX range and mark, as columns of numbers."""
    threads: Codebook[tuple[int, ...]] = Codebook()
    calls = _calls(db, threads)
    nvtx = _nvtx(db, threads)
    known = [key for (key,) in threads.keys]
    names = _thread_names(db, known)
    listed = [Thread(key >> _PID & _THREAD, key & _THREAD, names.get(key, "")) for key in known]
    return HostEvents(calls, nvtx, listed, process_names(db, {thread.pid for thread in listed}))


def _calls(db: Database, threads: Codebook[tuple[int, ...]]) -> ApiCalls:
    none = np.empty(0, np.int64)
    table = db.table(RUNTIME)
    if table is None:
        return ApiCalls(none, none, none, none, none, [])
    book: Codebook[tuple[int, ...]] = Codebook()
    columns = Columns(db.most_rows(table), np.int64, np.uint32, np.int32, np.int32, np.int64)
    correlation = "coalesce(nullif(correlationId, 0), -1)"  # -1: no operation's
    select = ["start", "end - start", "coalesce(globalTid, 0)", "nameId", correlation]
    for numbers, threaded, names_of_chunk in db.scan(select, table, _call_part, first_of_each(db)):
        start, duration, key = numbers
        thread, name = threads.translate(*threaded), book.translate(*names_of_chunk)
        columns.append(start, duration, thread, name, key)
    texts = read_strings(db, [number for (number,) in book.keys])
    names = [ABI_VERSION.sub("", texts.get(number, f"call {number}")) for (number,) in book.keys]
    start, duration, thread, name, key = columns.finish()
    return ApiCalls(start, duration, thread, name, key, names)


_Coded = tuple[Array, list[tuple[int, ...]]]
_Named = tuple[Array, list[tuple[int, int, str]]]


def _call_part(columns: list[Array]) -> tuple[list[Array], _Coded, _Coded]:
    start, duration, thread, name, correlation = columns
    key = call_key(thread >> _PID, correlation)
    return [start, short(duration), key], factor([thread]), factor([name])


def _nvtx(db: Database, threads: Codebook[tuple[int, ...]]) -> NvtxEvents:
    none = np.empty(0, np.int64)
    table = db.table(NVTX)
    if table is None or not db.has_rows(NVTX):
        return NvtxEvents(none, none, none, none, none, [])
    columns = Columns(db.most_rows(table), np.int64, np.int64, np.int32, np.int32, np.int16)
    book: Codebook[tuple[int, int, str]] = Codebook()
    kinds = np.zeros(max(_KINDS) + 1, np.int16)
    for number, kind in _KINDS.items():
        kinds[number] = NvtxEvents.kinds.index(kind)

    def read_chunk(columns: list[Array]) -> tuple[list[Array], _Coded, _Named]:
        start, end, thread, number, kind, *texts = columns
        names_of_chunk = coded_names([number, thread >> _PID], texts, np.arange(len(start)))
        return [start, end, kinds[kind]], factor([thread]), names_of_chunk

    for (start, end, code), threaded, names_of_chunk in db.scan(
        _nvtx_select(db), table, read_chunk, _wanted()
    ):
        columns.append(
            start, end, threads.translate(*threaded), book.translate(*names_of_chunk), code
        )
    names, codes = range_names(db, book)
    start, end, thread, name_code, kinds_of = columns.finish()
    return NvtxEvents(start, end, thread, codes[name_code], kinds_of, list(map(label, names)))


def _nvtx_select(db: Database) -> list[str]:
    columns = db.columns(NVTX)
    number = f"coalesce(textId, {_NO_ID})" if "textId" in columns else str(_NO_ID)
    if "domainId" in columns:
        number = f"{number} | ((coalesce(domainId, 0) & 2147483647) << 32)"
    select = ["start", f"coalesce(end, {OPEN_END})", "globalTid", number, "eventType"]
    return [*select, TEXT] if _has_texts(db) else select


def _has_texts(db: Database) -> bool:
    """Whether names stand in the text column, which costs time to read."""
    columns = db.columns(NVTX)
    if not columns >= {"text", "textId"}:
        return "text" in columns
    query = f'SELECT 1 FROM "{db.table(NVTX)}" WHERE {_wanted()} AND textId IS NULL LIMIT 1'
    return bool(db.rows(query))


def _wanted() -> str:
    return f"eventType IN ({', '.join(map(str, _KINDS))}) AND globalTid IS NOT NULL"


def _thread_names(db: Database, threads: list[int]) -> dict[int, str]:
    table = db.table("ThreadNames")
    if table is None or not threads or not db.columns("ThreadNames") >= {"globalTid", "nameId"}:
        return {}
    wanted = str(sorted(threads))[1:-1]
    rows = db.rows(f'SELECT globalTid, nameId FROM "{table}" WHERE globalTid IN ({wanted})')
    texts = read_strings(db, [name for _, name in rows])
    return {thread: texts[name] for thread, name in rows if name in texts}


def process_names(db: Database, wanted: set[int]) -> dict[int, str]:
    """Names of processes by their id, of those `wanted` that the export names."""
    table = db.table("PROCESSES")
    if table is None or not db.columns("PROCESSES") >= {"pid", "name"}:
        return {}
    rows = db.rows(f'SELECT pid, name FROM "{table}"')
    return {pid: str(name) for pid, name in rows if pid in wanted and name}
