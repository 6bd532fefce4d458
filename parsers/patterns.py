"""Regular expressions that users write, held to a time: some take longer than anybody waits.

A pattern such as `(a+)+$` needs twice the time for each further character that it does not fit. One
that is so slow on a short text is refused when it is read; one that is slow on the names of a trace
ends there. The limit is of CPU time, and holds in the main thread alone: signals go there.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

_PROBE_SECONDS, _PROBE_LENGTH, _PROBES = 0.5, 28, 64


class TooSlow(Exception):
    """A pattern takes longer than its limit."""


@lru_cache(256)
def compile_pattern(text: str) -> re.Pattern[str]:
    """Return the compiled pattern.

    Raises:
        ValueError: it is no regular expression, or one that takes exponential time.
    """
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"not a regular expression: {error}") from error
    try:
        with limit_time(_PROBE_SECONDS):
            for character in sorted({*text, *"a0 _"})[:_PROBES]:
                pattern.search(f"{character * _PROBE_LENGTH}\n\0")
    except TooSlow:
        raise ValueError(
            f"not usable as a regular expression: on {_PROBE_LENGTH} characters {character!r} it "
            f"takes longer than {_PROBE_SECONDS} s, because repeats stand inside of repeats"
        ) from None
    return pattern


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raise TooSlow after so much CPU time; `re` looks for signals while it matches."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: object) -> None:
        raise TooSlow

    old = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)
