"""What a target that has started processes does when it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """SIGTERM or SIGINT came: nothing more is measured, all processes are ended."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Turn SIGTERM and SIGINT into Stopped; a second one is not heard while processes are ended."""

    def stop(number: int, _: FrameType | None) -> NoReturn:
        _ignore()
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end and close the loop.

    An event loop keeps for itself what a signal handler raises in one of its callbacks: here a
    signal cancels the coroutine.

    Raises:
        Stopped: SIGTERM or SIGINT came.
    """
    came: list[int] = []
    task = loop.create_task(work)

    def stop(number: int) -> None:
        came.append(number)
        task.cancel()

    heard = SIGNALS if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.getsignal(number) for number in heard}
    for number in heard:
        loop.add_signal_handler(number, stop, number)
    try:
        loop.run_until_complete(task)
    except asyncio.CancelledError:
        if came:
            raise Stopped(came[0]) from None
        raise
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN if came else handler)
        _close(loop)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()

    async def gathered() -> None:
        await asyncio.gather(*left, return_exceptions=True)

    loop.run_until_complete(gathered())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def _ignore() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
