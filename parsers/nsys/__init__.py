"""Nsight Systems exports: a SQLite trace or a kernel summary becomes tidy tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nsight_prof.parsers.nsys.database import Database
from nsight_prof.parsers.nsys.host_events import HostEvents, read_host_events
from nsight_prof.parsers.nsys.kern_sum_csv import is_kern_sum, read_kern_sum, read_kernel_summary
from nsight_prof.parsers.nsys.memory_events import MemoryEvents, read_memory_events
from nsight_prof.parsers.nsys.paths import Stages
from nsight_prof.parsers.nsys.trace import HINT, WHAT, NsysTrace
from nsight_prof.parsers.reading import reading
from nsight_prof.parsers.run_dir import plain_file

__all__ = [
    "HINT",
    "WHAT",
    "Events",
    "NsysTrace",
    "is_kern_sum",
    "open_trace",
    "read_events",
    "read_kern_sum",
    "read_kernel_summary",
]


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
    with plain_file(path) as plain, reading(path, WHAT, HINT):
        db = Database(plain, path)
        try:
            return Events(read_host_events(db), read_memory_events(db))
        finally:
            db.close()


@contextmanager
def open_trace(path: Path, stages: Stages = ()) -> Iterator[NsysTrace]:
    """Open an nsys SQLite export (.sqlite or .sqlite.xz), strictly read only.

    Args:
        path: export of any nsys version from 2021.2 on.
        stages: regular expressions of NVTX range names that are stages of the program, matched as
            a whole; the outermost fitting range wins. None: the outermost range of the thread.
            A mapping from names to regular expressions gives the stages these names; of several
            that fit a range, the first names it.

    Raises:
        ArtifactUnreadable: not a whole nsys export, or a needed table or column is missing.
        NoKernels: the trace holds no GPU kernel.
    """
    with plain_file(path) as plain:
        with reading(path, WHAT, HINT):
            trace = _trace(plain, path, stages)
        with trace:
            yield trace


def _trace(plain: Path, path: Path, stages: Stages) -> NsysTrace:
    db = Database(plain, path)
    try:
        return NsysTrace(db, stages)
    except BaseException:
        db.close()
        raise
