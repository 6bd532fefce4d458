"""Runs one program to its end, its timeout or Ctrl-C, and leaves nothing of it behind.

The only module that starts processes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nsight_prof.orchestrator.system.process_tree import (
    MARK,
    OWNER,
    Tree,
    adopting,
    begin_of,
    end_with_parent,
    mark_of,
    owner,
)
from nsight_prof.parsers.errors import StepFailed

TAIL_BYTES = 16_384
POLL_SECONDS = 0.2
# An answer is a version or a help text (ncu 2025.3.1: 60 kB); what prints on and on is ended.
LONGEST_ANSWER = 4 << 20
LONGEST_ARGUMENT = 128 * 1024 - 1


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
    """What a short question to a program gave: see `ask`.

    `trouble` says in words why it is no answer: `did not end within 30 s`; empty where it is one.
    """

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    trouble: str = ""


def run(command: Command, waits: Callable[[float], None] | None = None) -> Finished:
    """Run `command` to its end; `waits` is called a few times per second with the elapsed seconds.

    Ctrl-C ends the whole process group before KeyboardInterrupt goes on; a second Ctrl-C kills it
    at once.

    Raises:
        StepFailed: the program cannot be started.
    """
    mark = mark_of(command.stdout.parent)
    started = time.monotonic()
    with command.stdout.open("wb") as out, command.stderr.open("wb") as err, adopting():
        process = _start(command, mark, out.fileno(), err.fileno())
        begin = 0
        try:
            begin = begin_of(process.pid)  # while its end is not collected
            timed_out = not _await_end(process, command.timeout_s, started, waits)
        finally:
            try:
                Tree(mark, process.pid, begin).end(command.grace_s, process.poll)
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


def run_attached(
    argv: Sequence[str], waits: Callable[[], None], variables: Mapping[str, str]
) -> int:
    """Run a program on prof's own stdin, stdout and stderr; return its exit code, as a shell does.

    Its environment is that of prof, with `variables`.

    `waits` is called a few times per second; what it raises ends the program. SIGPIPE is ignored in
    the program: whoever read its output may be gone.

    Raises:
        StepFailed: the program cannot be started.
    """

    def prepare() -> None:
        end_with_parent()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    try:
        process = subprocess.Popen(
            argv, env={**os.environ, **variables}, restore_signals=False, preexec_fn=prepare
        )
    except OSError as error:
        raise StepFailed(
            f"{argv[0]} cannot be started: {error.strerror or error}",
            "check that the program exists and is executable",
        ) from error
    try:
        while True:
            waits()
            if (code := _exit_code(process, POLL_SECONDS)) is not None:
                return code if code >= 0 else 128 - code
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def run_launcher(command: Command, waits: Callable[[float], None]) -> Finished:
    """Run a program that ends its processes itself; they may outlive it.

    What `waits` raises, and the end of its time, is a SIGTERM to the program alone.

    Raises:
        StepFailed: the program cannot be started.
    """
    started = time.monotonic()
    timed_out = False
    with command.stdout.open("wb") as out, command.stderr.open("wb") as err:
        try:
            process = subprocess.Popen(
                command.argv, env=command.env, cwd=command.cwd, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise StepFailed(
                f"{command.argv[0]} cannot be started: {error.strerror or error}",
                "check that the program exists and is executable",
            ) from error
        try:
            while process.poll() is None and not timed_out:
                elapsed = time.monotonic() - started
                waits(elapsed)
                timed_out = command.timeout_s is not None and elapsed > command.timeout_s
                _exit_code(process, POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=command.grace_s)
            if process.poll() is None:
                process.kill()
                process.wait()
    code = process.returncode
    return Finished(
        exit_code=code if code >= 0 else None,
        seconds=time.monotonic() - started,
        timed_out=timed_out,
        signal=_signal_name(code),
        tail=_tail(command.stdout) + _tail(command.stderr),
    )


def start_background(argv: Sequence[str], output: Path) -> Callable[[], int | None]:
    """Start a program that ends by itself, its output in a file; the result tells its exit code.

    The exit code is None while it runs. What cannot be started has ended with 127.
    """
    with output.open("wb") as stream:
        try:
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
            ).poll
        except OSError as error:
            stream.write(f"{argv[0]} cannot be started: {error.strerror or error}".encode())
            return lambda: 127


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

        def waits(_seconds: float) -> None:
            if max(log.stat().st_size for log in (out, err)) > LONGEST_ANSWER:
                raise _PrintsOn

        trouble = ""
        finished = None
        try:
            finished = run(command, waits)
        except StepFailed as error:
            return Answer(None, "", error.message, False, error.message)
        except _PrintsOn:
            trouble = f"printed more than {LONGEST_ANSWER >> 20} MiB and was ended"
        else:
            trouble = _trouble(finished, timeout_s)
        timed_out = finished is not None and finished.timed_out
        code = None if finished is None or timed_out else finished.exit_code
        return Answer(code, _head(out), _head(err), timed_out, trouble)


class _PrintsOn(Exception):
    """A program prints more than any answer holds."""


def _trouble(finished: Finished, timeout_s: float) -> str:
    if finished.timed_out:
        return f"did not end within {timeout_s:.0f} s"
    if finished.signal:
        return f"was killed ({finished.signal})"
    if finished.exit_code:
        line = next(filter(None, map(str.strip, finished.tail.splitlines())), "")
        return f"ended with exit code {finished.exit_code}{line and f': {line[:200]}'}"
    return ""


def _head(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(LONGEST_ANSWER).decode("utf-8", errors="replace")


def end_leftovers(folder: Path, grace_s: float = 10.0) -> int:
    """End what still runs of commands that wrote into `folder`; return how many processes.

    There are some where prof itself was killed (SIGKILL, out of memory) and could not end them.
    """
    return Tree(mark_of(folder)).end(grace_s)


def _start(command: Command, mark: str, out: int, err: int) -> subprocess.Popen[bytes]:
    env = {**command.env, MARK: mark, OWNER: owner()}
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
            preexec_fn=end_with_parent,
        )
    except OSError as error:
        if error.errno == errno.E2BIG:
            raise _too_long(command) from error
        raise StepFailed(
            f"{command.argv[0]} cannot be started in {command.cwd}: {error.strerror or error}",
            "check that the program exists and is executable: prof run … --dry-run shows the argv",
        ) from error


def _too_long(command: Command) -> StepFailed:
    longest = max(len(os.fsencode(word)) for word in command.argv)
    return StepFailed(
        f"{command.argv[0]} cannot be started: its arguments are too long for Linux (the longest "
        f"has {longest:,} bytes; one may have {LONGEST_ARGUMENT:,})",
        "put what is long into a file and give the program its name",
    )


def _await_end(
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
        timeout = POLL_SECONDS if timeout_s is None else min(POLL_SECONDS, timeout_s - elapsed)
        if _exit_code(process, max(timeout, 0.01)) is not None:
            return True
        if timeout_s is not None and time.monotonic() - started >= timeout_s:
            return False


def _exit_code(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Wait so long for the end of a program; return its exit code, None where it goes on.

    `Popen.wait` with a timeout looks every 50 ms, which is longer than many programs take.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # no Linux from 5.3 on, or collected already
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(seconds)
        return None
    try:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        ended.poll(1000 * seconds)
    finally:
        os.close(descriptor)
    return process.poll()


def _signal_name(code: int | None) -> str:
    if code is None:
        return "SIGKILL"
    return signal.Signals(-code).name if code < 0 else ""


def _tail(path: Path) -> str:
    with path.open("rb") as stream:
        stream.seek(max(path.stat().st_size - TAIL_BYTES, 0))
        return stream.read().decode("utf-8", errors="replace")
