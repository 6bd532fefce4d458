"""Runs one program to its end, its timeout or Ctrl-C, and leaves nothing of it behind.

The only module that starts processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nsight_prof.parsers.errors import StepFailed

TAIL_BYTES = 16_384
POLL_SECONDS = 0.2
# Every child inherits this variable, so that processes which left the group are still found.
MARK = "PROF_PROCESS_MARK"


@dataclass(frozen=True)
class Command:
    """What to start: argv (never a shell string), the whole environment, folder and bounds.

    `timeout_s` None waits forever. At the end the process group gets SIGTERM, and SIGKILL after
    `grace_s`. `stdout` and `stderr` are files that receive the output as it comes.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    stdout: Path
    stderr: Path
    timeout_s: float | None = None
    grace_s: float = 10.0


@dataclass(frozen=True)
class Finished:
    """How a program ended; `exit_code` is None where a signal ended it, `signal` is its name.

    `tail` is the end of stdout and stderr together, at most 16 KiB of each.
    """

    exit_code: int | None
    seconds: float
    timed_out: bool
    signal: str
    tail: str

    @property
    def ok(self) -> bool:
        """It ended by itself with exit code 0."""
        return self.exit_code == 0 and not self.timed_out


@dataclass(frozen=True)
class Answer:
    """What a short question to a program gave: see `ask`."""

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool


def run(command: Command, waits: Callable[[float], None] | None = None) -> Finished:
    """Run `command` to its end; `waits` is called a few times a second with the elapsed seconds.

    Ctrl-C ends the whole process group before KeyboardInterrupt goes on; a second Ctrl-C kills it
    at once.

    Raises:
        StepFailed: the program cannot be started.
    """
    mark = _mark(command.stdout.parent)
    started = time.monotonic()
    with command.stdout.open("wb") as out, command.stderr.open("wb") as err:
        process = _start(command, mark, out.fileno(), err.fileno())
        try:
            timed_out = not _wait(process, command.timeout_s, started, waits)
        finally:
            try:
                _end_all(process.pid, mark, command.grace_s, process.poll)
            finally:
                # A process stuck in the driver survives even SIGKILL until the driver lets go.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=command.grace_s)
    code = process.returncode
    return Finished(
        exit_code=code if code is not None and code >= 0 else None,
        seconds=time.monotonic() - started,
        timed_out=timed_out,
        signal=_signal_name(code),
        tail=_tail(command.stdout) + _tail(command.stderr),
    )


def ask(
    argv: Iterable[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 30.0,
) -> Answer:
    """Run a short command (`--version`, `--help`) and return what it printed; never raises.

    `exit_code` is None where the program cannot be started or did not end in time.
    """
    with tempfile.TemporaryDirectory(prefix="prof-ask-") as folder:
        out, err = Path(folder) / "stdout", Path(folder) / "stderr"
        command = Command(
            tuple(argv),
            os.environ if env is None else env,
            cwd or Path.cwd(),
            out,
            err,
            timeout_s,
            grace_s=1.0,
        )
        try:
            finished = run(command)
        except StepFailed as error:
            return Answer(None, "", error.message, False)
        return Answer(
            None if finished.timed_out else finished.exit_code,
            out.read_text(encoding="utf-8", errors="replace"),
            err.read_text(encoding="utf-8", errors="replace"),
            finished.timed_out,
        )


def end_leftovers(folder: Path, grace_s: float = 10.0) -> int:
    """End what still runs of commands that wrote into `folder`; return how many processes.

    There are some where prof itself was killed (SIGKILL, out of memory) and could not end them.
    """
    return _end_all(None, _mark(folder), grace_s, lambda: None)


def _mark(folder: Path) -> str:
    """Return what processes are found by that write into `folder`, by this prof or an earlier."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]


def _start(command: Command, mark: str, out: int, err: int) -> subprocess.Popen[bytes]:
    env = {**command.env, MARK: mark}
    # Popen would look the program up on prof's own PATH, not on the chosen one.
    program = shutil.which(command.argv[0], path=env.get("PATH")) or command.argv[0]
    try:
        return subprocess.Popen(
            command.argv,
            executable=program,
            env=env,
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    except OSError as error:
        raise StepFailed(
            f"{command.argv[0]} cannot be started in {command.cwd}: {error.strerror or error}",
            "check that the program exists and is executable: prof run … --dry-run shows the argv",
        ) from error


def _wait(
    process: subprocess.Popen[bytes],
    timeout_s: float | None,
    started: float,
    waits: Callable[[float], None] | None,
) -> bool:
    """Wait for the end; False where the timeout came first."""
    while True:
        elapsed = time.monotonic() - started
        if waits is not None:
            waits(elapsed)
        left = POLL_SECONDS if timeout_s is None else min(POLL_SECONDS, timeout_s - elapsed)
        try:
            process.wait(timeout=max(left, 0.01))
            return True
        except subprocess.TimeoutExpired:
            if timeout_s is not None and time.monotonic() - started >= timeout_s:
                return False


def _end_all(group: int | None, mark: str, grace_s: float, reap: Callable[[], int | None]) -> int:
    """End what is left of the group and of marked processes: SIGTERM, then SIGKILL.

    `reap` collects the leader, which is a zombie until then. Return how many there were.
    """
    left = [group] if group is not None else []
    try:
        deadline = time.monotonic() + grace_s
        reap()
        left = found = _signal(group, mark, signal.SIGTERM)
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            reap()
            left = _left(group, mark)
    finally:
        if left:
            _signal(group, mark, signal.SIGKILL)
    return len(found)


def _signal(group: int | None, mark: str, number: signal.Signals) -> list[int]:
    left = _left(group, mark)
    for pid in left:
        # It may have ended meanwhile, or belong to another user (sudo): not ours to end.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return left


def _left(group: int | None, mark: str) -> list[int]:
    """Return running processes of the group, and those that left it but carry the mark."""
    needle = f"{MARK}={mark}".encode()
    return [
        pid
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit())
        if (group is not None and _runs(pid, group)) or (needle in _environment(pid) and _runs(pid))
    ]


def _runs(pid: int, group: int | None = None) -> bool:
    """Tell whether `pid` is no zombie, and of `group` where that is given."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    state, _, pgrp = text.rpartition(")")[2].split()[:3]
    return state not in "ZX" and group in (None, int(pgrp))


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _signal_name(code: int | None) -> str:
    if code is None:
        return "SIGKILL"
    return signal.Signals(-code).name if code < 0 else ""


def _tail(path: Path) -> str:
    with path.open("rb") as stream:
        stream.seek(max(path.stat().st_size - TAIL_BYTES, 0))
        return stream.read().decode("utf-8", errors="replace")
