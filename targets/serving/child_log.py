"""Keeps the last lines of stderr, where an engine in a process of its own says why it ends.

What vLLM raises in the process that started it is "see the stack trace above" and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import threading

KEPT = 256 * 1024
"""Bytes of the end of the log that are kept."""
PIPE = 1 << 20
"""Bytes that wait in the pipe: code that writes while it holds the interpreter must not block."""


class ChildLog:
    """Passes on all that this process and its children write to stderr, and remembers the end."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._lock = threading.Lock()
        sys.stderr.flush()
        self._stderr: int | None = os.dup(2)
        source, sink = os.pipe()
        with contextlib.suppress(AttributeError, OSError):  # more than a user may have
            fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, PIPE)
        os.dup2(sink, 2)
        os.close(sink)
        self._thread = threading.Thread(
            target=self._relay, args=(source, os.dup(self._stderr)), daemon=True
        )
        self._thread.start()

    def text(self) -> str:
        """Return what is remembered."""
        with self._lock:
            return self._kept.decode("utf-8", "replace")

    def settle(self, seconds: float = 1.0) -> str:
        """Give back stderr, wait for the last words of children that ended; return the text.

        Children that live on hold the pipe open: then the wait takes the time given. What they
        write is passed on as long as this process lives.
        """
        if self._stderr is not None:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
            os.dup2(self._stderr, 2)
            os.close(self._stderr)
            self._stderr = None
        self._thread.join(seconds)
        return self.text()

    def _relay(self, source: int, target: int) -> None:
        while True:
            data = os.read(source, 65536)
            if not data:
                break
            with self._lock:
                self._kept += data
                del self._kept[:-KEPT]
            _write_all(target, data)
        os.close(source)
        os.close(target)


def _write_all(target: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads stderr any more
        while data:
            data = data[os.write(target, data) :]
