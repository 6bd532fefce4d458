"""Matches the patterns of users on the names of a trace, held to a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.patterns import TooSlow, limit_time

SECONDS = 5.0
"""CPU time for one pattern on all names of a trace; usual ones take microseconds a name."""


@contextmanager
def matching(what: str) -> Iterator[None]:
    """Match users' patterns inside: `what` names them.

    Raises:
        UsageError: that takes more than SECONDS of CPU time.
    """
    try:
        with limit_time(SECONDS):
            yield
    except TooSlow:
        raise UsageError(
            f"{what} takes longer than {SECONDS:g} s on the names of this trace",
            "write it without repeats inside of repeats: `(a+)+` and `(a|a)*` are `a+` and `a*`",
        ) from None
