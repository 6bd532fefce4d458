"""Reads where and when a trace was recorded: host, start of the session, processes, GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.leaves import Column
from nsight_prof.parsers.nsys.sqlite.opening import open_database
from nsight_prof.parsers.nsys.sqlite.schema import KERNEL, PROCESS, SESSION

SYSTEM = "TARGET_INFO_SYSTEM_ENV"
LONGEST_NAME = 255


@dataclass(frozen=True)
class Identity:
    """What tells a trace from that of another rank or job.

    `host` is empty and `begin_ns` and `end_ns` (first and last kernel, UTC) are None where the
    export does not tell. `pids` are the processes that launched kernels.
    """

    host: str
    begin_ns: int | None
    end_ns: int | None
    pids: tuple[int, ...]
    devices: tuple[int, ...]


def read_identity(db: Database) -> Identity:
    """Read the identity of a trace that holds kernels."""
    chunks = list(db.scan(_COLUMNS, db.table(KERNEL) or KERNEL, _read_chunk))
    pairs = sorted(set().union(*(found for *_, found in chunks)))
    start = session_start(db)
    return Identity(
        host=_host(db),
        begin_ns=None if start is None else start + min(first for first, *_ in chunks),
        end_ns=None if start is None else start + max(last for _, last, _ in chunks),
        pids=tuple(dict.fromkeys(pid for pid, _ in pairs)),
        devices=tuple(sorted({device for _, device in pairs})),
    )


_COLUMNS = [Column("start"), Column("end"), Column("globalPid", 0), Column("deviceId")]


def _read_chunk(columns: list[Array]) -> tuple[int, int, set[tuple[int, int]]]:
    """Return the first start, the last end, and the pairs of process and device."""
    start, end, pid, device = columns
    # One process follows the other rarely: only rows unlike the one before are looked at.
    changes = np.flatnonzero((pid[1:] != pid[:-1]) | (device[1:] != device[:-1])) + 1
    at = np.append(0, changes)
    pairs = zip((pid[at] >> 24 & PROCESS).tolist(), device[at].tolist(), strict=True)
    return int(start.min()), int(end.max()), set(pairs)


def _host(db: Database) -> str:
    table = db.table(SYSTEM)
    if table is None or not {"name", "value"} <= db.columns(SYSTEM):
        return ""
    rows = db.rows(f"SELECT value FROM \"{table}\" WHERE name = 'Hostname' LIMIT 1")
    return str(rows[0][0] or "")[:LONGEST_NAME] if rows else ""


def trace_start(path: Path) -> int | None:
    """Return `session_start` of an nsys export; raises what `open_database` does."""
    with open_database(path) as db:
        return session_start(db)


def session_start(db: Database) -> int | None:
    """When the clock of the trace was 0, UTC in ns; None where the export does not tell."""
    table = db.table(SESSION)
    if table is None or "utcEpochNs" not in db.columns(SESSION):
        return None
    rows = db.rows(f'SELECT utcEpochNs FROM "{table}" LIMIT 1')
    return rows[0][0] if rows and isinstance(rows[0][0], int) and rows[0][0] > 0 else None
