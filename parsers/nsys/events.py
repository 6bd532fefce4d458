"""Reads the single events of a trace: calls of the host, NVTX ranges, copies and memory sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nsight_prof.parsers.nsys.rows.calls import ApiCalls, read_api_calls
from nsight_prof.parsers.nsys.rows.memory_events import MemoryEvents, read_memory_events
from nsight_prof.parsers.nsys.rows.nvtx import NO_NVTX, NvtxEvents, read_nvtx
from nsight_prof.parsers.nsys.rows.threads import Thread, listed_threads, process_names
from nsight_prof.parsers.nsys.sqlite.codes import Threads
from nsight_prof.parsers.nsys.sqlite.database import Database
from nsight_prof.parsers.nsys.sqlite.opening import open_database


@dataclass
class HostEvents:
    """All events of the host; `processes` are the names of those that the export names."""

    calls: ApiCalls
    nvtx: NvtxEvents
    threads: list[Thread]
    processes: dict[int, str]


@dataclass
class Events:
    """Everything of a trace but its kernel launches, which table `launches` holds."""

    host: HostEvents
    memory: MemoryEvents


def read_events(path: Path, *, with_ranges: bool = True) -> Events:
    """Read the single events of an nsys SQLite export (.sqlite or .sqlite.xz), without kernels.

    NVTX ranges and marks are most of them: `with_ranges` says whether they are read.

    Raises:
        ArtifactUnreadable: not a whole nsys export.
    """
    with open_database(path) as db:
        return Events(_host_events(db, with_ranges=with_ranges), read_memory_events(db))


def _host_events(db: Database, *, with_ranges: bool) -> HostEvents:
    """Read every CUDA API call and every NVTX range and mark, as columns of numbers."""
    threads = Threads()
    calls = read_api_calls(db, threads)
    nvtx = read_nvtx(db, threads) if with_ranges else NO_NVTX
    listed = listed_threads(db, threads)
    return HostEvents(calls, nvtx, listed, process_names(db, {thread.pid for thread in listed}))
