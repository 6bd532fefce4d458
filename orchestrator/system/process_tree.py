"""Finds and ends all processes of a started program: its group, its orphans, those with its mark.

A daemon leaves group and session, and may drop its environment; then only its parent tells whose it
is. While a program runs, prof adopts what would become a child of init (PR_SET_CHILD_SUBREAPER).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# Every child inherits these: the folder that it writes into, as a hash, and the prof that began it.
MARK, OWNER = "PROF_PROCESS_MARK", "PROF_PROCESS_OWNER"
PROC = Path("/proc")
PF_KTHREAD = 0x00200000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 1, 36, 37
# Loaded before a fork: between fork and exec nothing may be imported.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


@dataclass(frozen=True)
class Tree:
    """The processes of one program: those of its group, with its mark, or adopted from it.

    Of a program that this prof started, `group` is its id and `begin` the tick at which it began
    (`begin_of`): nothing that is older belongs to it.
    """

    mark: str
    group: int | None = None
    begin: int = 0

    def running(self) -> list[int]:
        """Return those that run; adopted ones that have ended are reaped."""
        table = _processes()
        needle = f"{MARK}={self.mark}".encode()
        found = []
        for pid, process in table.items():
            if self._is_older(pid, process):
                continue
            adopted = self._is_adopted(pid, table)
            if process.state in "ZX":
                if adopted and process.parent == os.getpid() and pid != self.group:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)
            elif process.group == self.group or adopted or needle in _environment(pid):
                found.append(pid)
        return found

    def signal(self, number: signal.Signals) -> list[int]:
        """Send a signal to all that run, and return them."""
        remaining = self.running()
        for pid in remaining:
            # It may have ended meanwhile, or belong to another user (sudo): not ours to end.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        return remaining

    def end(self, grace_s: float, reap: Callable[[], int | None] = lambda: None) -> int:
        """Send SIGTERM to what is left, then SIGKILL; return how many there were.

        `reap` collects the leader, which is a zombie until then.
        """
        remaining = [self.group] if self.group is not None else []
        try:
            deadline = time.monotonic() + grace_s
            reap()
            # What the program left is below a child of prof, which adopts it. A look at all
            # processes takes long on hosts that have thousands.
            may_be_left = self.group is None or _prctl is None or _has_children()
            remaining = found = self.signal(signal.SIGTERM) if may_be_left else []
            while remaining and time.monotonic() < deadline:
                time.sleep(0.05)
                reap()
                remaining = self.running()
        finally:
            if remaining:
                self.signal(signal.SIGKILL)
        return len(found)

    def _is_older(self, pid: int, process: _Process) -> bool:
        return self.group is not None and (process.begin, pid) < (self.begin, self.group)

    def _is_adopted(self, pid: int, table: dict[int, _Process]) -> bool:
        """Say whether the process descends from one that this program started or left to prof."""
        if self.group is None or _prctl is None:
            return False
        prof = os.getpid()
        for _ in range(len(table)):  # a table read while processes come and go may hold a circle
            process = table.get(pid)
            if process is None or pid == prof:
                return False
            if process.parent == prof:
                # What prof itself starts besides stays in prof's session.
                same_session = prof in table and process.session == table[prof].session
                return pid == self.group or not (same_session or self._is_older(pid, process))
            pid = process.parent
        return False


def _has_children() -> bool:
    """Tell whether this process has any child, ended or not; none is collected."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Let prof be the parent of orphans meanwhile."""
    if _prctl is None:
        yield
        return
    before = ctypes.c_int()
    _prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        _prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def end_with_parent() -> None:
    """Let the kernel send SIGTERM when prof dies, even of SIGKILL; called in the new process."""
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def mark_of(folder: Path) -> str:
    """Return what processes are found by that write into `folder`, by this prof or an earlier."""
    return hashlib.sha256(str(folder.resolve()).encode(errors="surrogateescape")).hexdigest()[:32]


def owner() -> str:
    """Return what tells this process from all others: its id and the tick at which it began."""
    return f"{os.getpid()}:{begin_of(os.getpid())}"


def abandoned() -> dict[int, str]:
    """Return process id -> program of what another prof started and did not live to end."""
    found = {}
    for pid, process in _processes().items():
        marks = dict(
            entry.split(b"=", 1) for entry in _environment(pid).split(b"\0") if b"=" in entry
        )
        starter = marks.get(OWNER.encode(), b"").decode(errors="replace")
        if not starter or process.state in "ZX" or not _same_namespace(pid):
            continue
        number, _, begin = starter.partition(":")
        if not number.isdigit() or str(begin_of(int(number))) != begin:
            found[pid] = process.name
    return found


class _Process(NamedTuple):
    name: str
    state: str
    parent: int
    group: int
    session: int
    begin: int


def _processes() -> dict[int, _Process]:
    found = {}
    for name in os.listdir(PROC) if PROC.is_dir() else ():
        if name.isdigit() and (fields := _stat(int(name))):
            if int(fields[7]) & PF_KTHREAD:  # as most are of a machine that does little else
                continue
            numbers = (*fields[2:5], fields[20])
            found[int(name)] = _Process(fields[0], fields[1], *map(int, numbers))
    return found


def _stat(pid: int) -> list[str]:
    """Return the name of a process and the fields after it; none where it has ended."""
    head, _, tail = _read(pid, "stat").decode(errors="replace").rpartition(")")
    return [head.partition("(")[2], *tail.split()] if tail else []


def begin_of(pid: int) -> int:
    """Return the tick after the start of the machine at which a process began; 0: unknown."""
    fields = _stat(pid)
    return int(fields[20]) if fields else 0


def _same_namespace(pid: int) -> bool:
    """Say whether process ids mean the same there: not those of another container."""
    try:
        return os.readlink(PROC / str(pid) / "ns/pid") == os.readlink(PROC / "self/ns/pid")
    except OSError:
        return False


def _environment(pid: int) -> bytes:
    return _read(pid, "environ")


def _read(pid: int, name: str) -> bytes:
    """Return what /proc has of a process; nothing where it has ended or is somebody else's."""
    try:
        # All processes of the machine are read many times per run: a Path each would take as long.
        with open(f"{PROC}/{pid}/{name}", "rb", buffering=0) as stream:
            return stream.readall()
    except OSError:
        return b""
