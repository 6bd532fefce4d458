"""Threads and processes of a trace, and their names."""

from __future__ import annotations

from dataclasses import dataclass

from nsight_prof.parsers.nsys.sqlite.codes import Threads
from nsight_prof.parsers.nsys.sqlite.database import Database
from nsight_prof.parsers.nsys.sqlite.schema import read_strings

THREAD, PID = 0xFFFFFF, 24  # globalTid: 24 bits of the thread, above them 24 of the process


@dataclass(frozen=True)
class Thread:
    """A thread of the traced program; `name` is empty where the export does not tell it."""

    pid: int
    tid: int
    name: str


def listed_threads(db: Database, threads: Threads) -> list[Thread]:
    """Return the thread of each code."""
    known = threads.ids.tolist()
    names = _thread_names(db, known)
    return [Thread(key >> PID & THREAD, key & THREAD, names.get(key, "")) for key in known]


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
