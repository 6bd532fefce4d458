"""Runs a function in a fork of this process, which imports or works out more meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection


@contextmanager
def second_process(serve: Callable[[Connection], None]) -> Iterator[Connection | None]:
    """Give a connection to a fork of this process that does `serve`; it ends with it.

    None where there is no second core or no fork that is safe (macOS).
    """
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        yield None
        return
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_begin, args=(serve, here, there))
    with warnings.catch_warnings():
        # Python 3.12 warns where there are threads. Those are arrow's and that of the display,
        # neither of which the second process uses.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    there.close()
    try:
        yield here
    except BaseException:
        process.kill()
        raise
    finally:
        here.close()  # at which it ends, and what it began
        process.join()


def _begin(
    serve: Callable[[Connection], None], parents: Connection, connection: Connection
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process ends this one
    parents.close()  # or the end of the other process would not be seen
    with suppress(EOFError, OSError):
        serve(connection)
