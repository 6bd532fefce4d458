"""Reads the single events of a trace: calls of the host, NVTX ranges, copies and memory sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nsight_prof.parsers.nsys.rows.host_events import HostEvents, read_host_events
from nsight_prof.parsers.nsys.rows.memory_events import MemoryEvents, read_memory_events
from nsight_prof.parsers.nsys.sqlite.opening import open_database


@dataclass
class Events:
    """Everything of a trace but its kernel launches, which table `launches` holds."""

    host: HostEvents
    memory: MemoryEvents


def read_events(path: Path) -> Events:
    """Read the single events of an nsys SQLite export (.sqlite or .sqlite.xz), without kernels.

    Raises:
        ArtifactUnreadable: not a whole nsys export.
    """
    with open_database(path) as db:
        return Events(read_host_events(db), read_memory_events(db))
