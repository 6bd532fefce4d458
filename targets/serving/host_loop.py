"""Times a fixed loop of Python on the thread that drives an engine, before each repeat.

The host issues a step at the speed that this very core has then; the same loop is timed beside
whole steps of a run by prof (table host_speed), on cores that are idle as a rule.
"""

from __future__ import annotations

import time

LOOP = 1000
"""Numbers that the loop sums."""


def loop_seconds() -> float:
    """Return the seconds of CPU time of one loop."""
    begin = time.thread_time_ns()
    total = 0
    for number in range(LOOP):
        total += number
    return (time.thread_time_ns() - begin) / 1e9
