"""Lets signals end a command as Ctrl-C does, so that it can put its things in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

# Batch systems announce the end of a job by SIGUSR1 or SIGXCPU, terminals by SIGHUP or SIGQUIT.
STOPS = (
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGALRM, signal.SIGXCPU),
)


@contextmanager
def stoppable(numbers: Iterable[int] = (signal.SIGTERM, signal.SIGHUP)) -> Iterator[None]:
    """Turn these signals into KeyboardInterrupt; what is ignored (nohup) stays ignored."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {
        number: signal.signal(number, stop)
        for number in numbers
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
    }
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
