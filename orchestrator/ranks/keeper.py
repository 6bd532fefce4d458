"""Keeps a rank's profiler alive when its launcher tears the job down.

torchrun, srun and Ray end the processes of a job with SIGTERM and soon after with SIGKILL, while
nsys still writes its report. So nsys and what follows run in a process of a session of its own, the
keeper. The process that the launcher knows passes its signals on to the profiled program alone; if
it is killed, the keeper ends the program and still keeps what was captured.

A program that a signal ends hands over none of CUPTI's records: of two such jobs on an H200 (nsys
2025.3.1) the reports held CUDA calls and no kernel. So the collection is ended first.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nsight_prof.orchestrator.ranks.launcher import PID_FILE
from nsight_prof.orchestrator.system.process import POLL_SECONDS, run_attached, start_background
from nsight_prof.orchestrator.system.process_tree import adopting, end_with_parent
from nsight_prof.orchestrator.tools.nsys import collection_ended
from nsight_prof.parsers.errors import StepFailed

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL}
"""Signals before which the collection is ended."""
STOP_S = 10.0
"""Time that the end of a collection may take before the program gets its signal."""
GRACE_S = 10.0
"""Time that a program has after SIGTERM once its launcher has killed the process it knows."""
FAILED = 1
# Writes its process id for the keeper and becomes the program, with the signals of a fresh process:
# nsys itself ignores SIGPIPE, since the pipe to a launcher that has gone must not end it.
SHIM = """
import os, signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
with open(sys.argv[1], "r+") as stream:
    stream.write(str(os.getpid()))
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"error: {sys.argv[2]} cannot be started: {error.strerror}")
"""


def keep(work: Callable[[Keeper], int]) -> int:
    """Run `work` in a session of its own, wait for it, and return its exit code."""
    launched = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = FAILED
        try:
            os.setsid()
            end_with_parent()
            code = work(Keeper(launched))
        finally:
            os._exit(code)
    for number in PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os.kill(pid, number))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@dataclass(frozen=True)
class Profiler:
    """How to start a profiler, and how to end its collection; no `stop`: it cannot be ended.

    The profiled program writes its process id into `folder / PID_FILE`. It is killed after
    `limit_s`; the profiler has `flush_s` after its end to write what it has. `variables` are set
    for both.
    """

    name: str
    argv: list[str]
    stop: list[str]
    folder: Path
    flush_s: float
    limit_s: float = math.inf
    variables: Mapping[str, str] = field(default_factory=dict)


class _Collection:
    """Ends the collection of a profiler while its program still runs."""

    def __init__(self, profiler: Profiler) -> None:
        self._stop, self._output = profiler.stop, profiler.folder / "stop.log"
        self._ended: Callable[[], int | None] = lambda: 0
        self._since = 0.0

    def end(self) -> bool:
        """Begin to end the collection, at the first call; tell whether it has ended."""
        if not self._stop:
            return True
        if not self._since:
            self._since = time.monotonic()
            self._ended = start_background(self._stop, self._output)
        late = time.monotonic() - self._since > STOP_S
        return late or self.written() or collection_ended(self._output.read_text(errors="replace"))

    def written(self) -> bool:
        """Tell whether no report is being written."""
        return self._ended() is not None


class Keeper:
    """Runs a program under a profiler, and passes signals on to the program alone."""

    def __init__(self, launched: int) -> None:
        self._launched, self._program, self._ended = launched, 0, 0.0
        self._pending: list[int] = []
        self._orphaned = 0.0
        self.overran = False
        """The program did not end by itself within the profiler's limit."""
        for number in PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _: self._pending.append(number))

    def run(self, profiler: Profiler) -> int:
        """Run a program under its profiler, and return the exit code of the program.

        Raises:
            StepFailed: the profiler still runs its time after the program; it is ended.
        """
        collection, begun = _Collection(profiler), time.monotonic()

        def waits() -> None:
            self._find(profiler.folder / PID_FILE)
            self._pass_on(collection)
            now = time.monotonic()
            if not self.overran and not self._ended and now - begun > profiler.limit_s:
                self.overran = True
                self._kill_program(now)
            if self._ended and now - self._ended > profiler.flush_s:
                raise StepFailed(
                    f"{profiler.name} did not end within {profiler.flush_s:.0f} s after the "
                    "program",
                    "give it more time: --flush SECONDS, or record less: a capture range, fewer "
                    "kernels",
                )

        with adopting():
            code = run_attached(profiler.argv, waits, profiler.variables)
            code = code if not _runs(self._program) else self._outlived(waits)
            while not collection.written():
                waits()
                time.sleep(POLL_SECONDS)
        return code

    def _outlived(self, waits: Callable[[], None]) -> int:
        """Wait for a program that still runs after its profiler, which left it to this process."""
        while True:
            pid, status = os.waitpid(self._program, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            waits()
            time.sleep(POLL_SECONDS)

    def _find(self, pid_file: Path) -> None:
        if not self._program:
            with suppress(OSError, ValueError):
                self._program = int(pid_file.read_text())
            if self._program and self.overran:  # it began after its time
                self._kill_program(time.monotonic())
        elif not self._ended and not _runs(self._program):
            self._ended = time.monotonic()

    def _kill_program(self, now: float) -> None:
        """Kill the program; of one that has not begun the profiler is ended after its time."""
        if not self._program:
            self._ended = now
            return
        with suppress(ProcessLookupError):
            os.kill(self._program, signal.SIGKILL)

    def _pass_on(self, collection: _Collection) -> None:
        now = time.monotonic()
        if not self._orphaned and os.getppid() != self._launched:
            self._orphaned = now
            self._pending.append(signal.SIGTERM)
        if self._orphaned and now - self._orphaned > STOP_S + GRACE_S:
            self._pending.append(signal.SIGKILL)
        if not self._program:
            return
        if self._ended or not ENDING.intersection(self._pending) or collection.end():
            pending, self._pending = self._pending, []
            for number in pending if not self._ended else ():
                with suppress(ProcessLookupError):
                    os.kill(self._program, number)


def _runs(pid: int) -> bool:
    """Tell whether a process (0: none) runs; an ended one that nobody has waited for does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return bool(fields) and fields[0] not in "ZX"
