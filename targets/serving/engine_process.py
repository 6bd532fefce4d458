"""A process of its own for an engine: started, listened to, and ended with all of its children."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

WORKER = Path(__file__).with_name("worker.py")
TAIL_LINES = 200
CHUNK = 65_536
GRACE_S = 5.0
"""Seconds from SIGTERM to SIGKILL; prof itself gives a target 10."""


class TooLong(Exception):
    """The process said nothing for as long as it may."""


class EngineProcess:
    """`worker.py` in a session of its own. Use as a context: at its end nothing of it is left.

    Attributes:
        pid: of the process, and of its group.
    """

    def __init__(self, plan: Mapping[str, Any], begin: float) -> None:
        """Start it.

        Args:
            plan: fields of `worker.Plan`, as JSON can hold them.
            begin: the time.monotonic() that its times count from.
        """
        self._ended = False
        self._reader, writer = os.pipe()
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._log: deque[str] = deque(maxlen=TAIL_LINES)
        argv = [sys.executable, str(WORKER), "--fd", str(writer), "--begin", repr(begin)]
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[writer],
                start_new_session=True,
            )
        except OSError:
            os.close(self._reader)
            raise
        finally:
            os.close(writer)
        self.pid = self._process.pid
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._output = threading.Thread(
            target=self._pass_on, args=[self._process.stdout], name="log", daemon=True
        )
        self._output.start()
        # stdin stays open: its end tells the worker that this process is no more.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(plan).encode() + b"\n")
            self._process.stdin.flush()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def next(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next record or event; None where the process has ended.

        Raises:
            TooLong: nothing came within `timeout_s` seconds, or they are over already.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if self._lines and timeout_s > 0:
                found = _parsed(self._lines.popleft())
                if found is not None:
                    return found
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                raise TooLong
            ready, _, _ = select.select([self._reader], [], [], left)
            if not ready:
                continue
            chunk = os.read(self._reader, CHUNK)
            if not chunk:
                return None
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._lines.extend(lines)

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit code (-N: ended by signal N), None where it still runs."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._output.join(timeout=1)  # its last words
        return code

    def log(self) -> str:
        """Return the last lines that it and its children wrote to stdout and stderr."""
        return "\n".join(list(self._log))

    def end(self) -> None:
        """End the process and its group: SIGTERM, and SIGKILL for what is left; may be repeated."""
        if self._ended:
            return
        self._ended = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            # GPU memory is free again only when the last process of the group is gone.
            if not self._signal(number) or self._empty(GRACE_S):
                break
        # A process stuck in the driver survives even SIGKILL until the driver lets go.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._output.join(timeout=1)
        os.close(self._reader)

    def _empty(self, timeout_s: float) -> bool:
        """Wait until nothing is left of the group; False where the time was too short."""
        deadline = time.monotonic() + timeout_s
        while self._signal(0):
            self._process.poll()  # collects the leader, which counts as left until then
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _signal(self, number: int) -> bool:
        """Signal the group; False where nothing is left of it."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _pass_on(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                text = line.decode(errors="replace").rstrip("\n")
                self._log.append(text)
                with contextlib.suppress(OSError, ValueError):
                    print(text, file=sys.stderr, flush=True)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line; None for one that is none, as of a process that was killed."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
