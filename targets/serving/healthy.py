"""Starts a server as a child, waits until it is healthy, and ends it with all of its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from nsight_prof.targets.serving.failures import VLLM, EngineFailure
from nsight_prof.targets.serving.server_log import why
from nsight_prof.targets.serving.telemetry import Gpu, load_nvml

HOST = "127.0.0.1"
POLL_S = 0.2
GRACE_S = 15.0
"""For the server to end by itself after SIGTERM: it ends its engine, which frees the GPU."""
KILL_S = 10.0
RELEASE_S = 5.0
GIB = 1 << 30
NOISE_BYTES = GIB // 4
"""Of GPU memory: what the driver keeps for itself comes and goes."""
FIRST_LINES, LAST_LINES = 2000, 400
"""Lines of the log that are kept: the start tells how the engine was made, the end why it died."""


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def require_free(port: int) -> None:
    """Make sure that a port is free: vLLM would share it with another server of the same user.

    Raises:
        EngineFailure: somebody listens there, or it may not be used.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: what is left of an ended connection must not count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise EngineFailure(
                f"port {port} cannot be used: {error.strerror or error}",
                "leave --port away, so that a free one is chosen, or name another; "
                f"ss -ltnp 'sport = :{port}' shows who has it",
            ) from error


class Server:
    """A server in a process group of its own. Use as a context: it is ended on the way out.

    Attributes:
        lines: the first and the last lines of what it printed.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], engine: str = VLLM) -> None:
        """Keep what to start.

        Args:
            argv: command of the server.
            env: its whole environment.
            engine: whose server it is, for what is said of its end.
        """
        self._engine = engine
        self._argv, self._env = list(argv), dict(env)
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    @property
    def lines(self) -> list[str]:
        """What the server printed so far, without the middle of a long log."""
        return [*self._first, *self._last]

    @property
    def ended(self) -> str:
        """How it ended, as a clause; "" while it runs."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return ""
        if code < 0:
            return f"the server was killed by {signal.Signals(-code).name}"
        return f"the server ended with exit code {code}"

    def start(self) -> None:
        """Start it; what it prints goes to stderr as it comes.

        Raises:
            EngineFailure: it cannot be started.
        """
        try:
            self._process = subprocess.Popen(
                self._argv,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineFailure(
                f"the server cannot be started: {error}", "name an interpreter that exists"
            ) from error
        self._reader = threading.Thread(target=self._read, name="server log", daemon=True)
        self._reader.start()

    def wait_healthy(self, healthy: Callable[[], bool], timeout_s: float) -> float:
        """Wait until `healthy` says so; return the seconds that it took.

        Raises:
            EngineFailure: the server ended, or was not healthy in time.
        """
        begin = time.monotonic()
        while not healthy():
            if self.ended:
                self._drain()
                raise why(self.lines, f"{self.ended} before it was healthy", engine=self._engine)
            if time.monotonic() - begin > timeout_s:
                said = self.lines[-1].strip()[:200] if self.lines else "nothing"
                raise EngineFailure(
                    f"the server was not healthy after {timeout_s:.0f} s; it last said: {said}",
                    "a first start compiles kernels and loads weights: give it more time "
                    "(--start-timeout 900); else its log stands above",
                )
            time.sleep(POLL_S)
        return time.monotonic() - begin

    def died(self, doing: str) -> EngineFailure:
        """Return why a server that was healthy has ended; call it where `ended` says so."""
        self._drain()
        return why(self.lines, f"{self.ended} {doing}", "serving", self._engine)

    def end(self) -> None:
        """End it and every process of its group; may be called twice."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=GRACE_S)
        if members(process.pid):
            _signal_group(process.pid, signal.SIGTERM)
            if not _gone(process.pid, 2.0):
                _signal_group(process.pid, signal.SIGKILL)
                if not _gone(process.pid, KILL_S):
                    left = ", ".join(str(pid) for pid in members(process.pid))
                    print(f"note: processes of the server still run: {left}", file=sys.stderr)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=KILL_S)
        self._drain()
        if process.stdout is not None:
            process.stdout.close()

    def _drain(self) -> None:
        """Wait until the log is read to its end, which a process that is left may keep open."""
        if self._reader is not None:
            self._reader.join(timeout=2.0)

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        rest = b""
        with contextlib.suppress(ValueError, OSError):  # closed while it is read
            while data := os.read(self._process.stdout.fileno(), 65536):
                # Progress bars return to the start of their line; only their last state counts.
                *whole, rest = (rest + data).split(b"\n")
                for line in whole:
                    self._keep(line)
        if rest:
            self._keep(rest)

    def _keep(self, data: bytes) -> None:
        line = data.decode("utf-8", errors="replace").rstrip("\r").rpartition("\r")[2]
        if len(self._first) < FIRST_LINES:
            self._first.append(line)
        else:
            self._last.append(line)
        with contextlib.suppress(OSError, ValueError):  # nobody reads stderr any more
            print(line, file=sys.stderr, flush=True)


class GpuMemory:
    """How much memory of some GPUs is in use, before a server and after it."""

    def __init__(self, uuids: Sequence[str], nvml: Any = None) -> None:
        """Ask for it now; where NVML cannot tell, nothing is said afterwards either."""
        self._gpus: list[Gpu] = []
        with contextlib.suppress(Exception):  # pynvml's own errors, where it is missing or mute
            module = load_nvml() if nvml is None else nvml
            module.nvmlInit()
            handles = [module.nvmlDeviceGetHandleByUUID(uuid.encode()) for uuid in uuids]
            self._gpus = [Gpu(module, index, handle) for index, handle in enumerate(handles)]
        self._before = self._used()

    def released(self, timeout_s: float = RELEASE_S) -> bool:
        """Wait until no more is in use than before; tell on stderr where it stays in use."""
        deadline = time.monotonic() + timeout_s
        while kept := self._kept():
            if time.monotonic() > deadline:
                print(
                    f"note: {kept / GIB:.1f} GiB more GPU memory are in use than before the server "
                    "was started; nvidia-smi shows whose they are",
                    file=sys.stderr,
                )
                return False
            time.sleep(POLL_S)
        return True

    def _used(self) -> list[int | None]:
        return [gpu.sample(0.0)["memory_used_bytes"] for gpu in self._gpus]

    def _kept(self) -> int:
        """Return the bytes in use beyond those before, 0 where it is no more than noise."""
        pairs = zip(self._before, self._used(), strict=True)
        more = sum(now - before for before, now in pairs if before is not None and now is not None)
        return more if more > NOISE_BYTES else 0


def members(group: int) -> list[int]:
    """Return the processes of a group that run: those that have ended and wait do not count."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            continue
        state, _, pgrp = text.rpartition(")")[2].split()[:3]
        if int(pgrp) == group and state not in "ZX":
            found.append(pid)
    return found


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _gone(group: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while members(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
