"""How a target ends that holds an engine: in bounded time, with no process of it left behind.

vLLM's executor for several GPUs keeps ZeroMQ contexts with open sockets; taking them apart in any
order but one waits for ever (seen with vLLM 0.20.2 and pyzmq 27 at tensor parallel 2).
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from nsight_prof.targets.serving.engine import Engine

CLOSE_S = 60
"""Seconds that an engine has to shut down; vLLM itself gives its workers 8."""
EXIT_S = 20
"""Seconds that the exit handlers of a process have."""


class _TooLong(Exception):
    """The time is over."""


def close(engine: Engine) -> None:
    """Close the engine, for CLOSE_S at most, and kill what is left of its processes."""
    try:
        with _at_most(CLOSE_S):
            engine.close()
    except _TooLong:
        print(f"note: vLLM did not shut down within {CLOSE_S} s", file=sys.stderr)
    for child in multiprocessing.active_children():
        child.kill()
        child.join(5)


def run_to_the_end(work: Callable[[], int], has_processes: bool) -> int:
    """Run `work` and return its exit code; SIGTERM ends it through its `finally` clauses.

    Args:
        work: what to do.
        has_processes: whether its engine has processes of its own. Then this process ends after
            its exit handlers, without taking apart what is left of vLLM, and EXIT_S after the work
            in any case. An engine in this process ends the usual way: a profiler inside of it may
            write its results only then.
    """
    signal.signal(signal.SIGTERM, _stop)
    if not has_processes:
        return work()
    code = 1  # of an exception
    atexit.register(lambda: _leave(code))  # the first that is registered runs last
    try:
        code = work()
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else 1
        raise
    finally:
        signal.signal(signal.SIGALRM, lambda *_: _leave(code))
        signal.alarm(EXIT_S)
    return code


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Interrupt the main thread after so many seconds, even where a finalizer waits."""

    def over(number: int, frame: FrameType | None) -> NoReturn:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """End through the `finally` clauses, so that the engine's processes end too."""
    raise SystemExit(128 + number)
