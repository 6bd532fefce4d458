"""Lets SIGTERM and SIGHUP end a command as Ctrl-C does, so that it can put its things in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt; what is ignored (nohup) stays ignored."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGHUP)
    old = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) != signal.SIG_IGN}
    for number in old:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
