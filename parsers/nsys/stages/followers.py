"""Gives GPU work that vLLM issues after the range of an engine step the stage of that step.

vLLM (0.20) closes its range `execute_context_…` before it samples the step's tokens: sampling is
launched by the same thread before the range of the next step begins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.names.ranges import ENGINE_STEP
from nsight_prof.parsers.nsys.rows.calls import Calls
from nsight_prof.parsers.nsys.rows.ranges import Ranges
from nsight_prof.parsers.nsys.sqlite.database import Array


@dataclass
class Followers:
    """Calls after each engine step: positions [first, last) in the calls' order.

    `inside` is the position of a call in the range of the step.
    """

    inside: Array
    first: Array
    last: Array


def find_followers(calls: Calls, ranges: Ranges) -> Followers:
    """Find the calls of a step's thread between the step's range and that of the next step."""
    is_step = [bool(ENGINE_STEP.fullmatch(text)) for _, text in ranges.names]
    steps = np.flatnonzero(np.array([*is_step, False], bool)[ranges.name])
    steps = steps[np.argsort(ranges.first[steps], kind="stable")]
    inside, first = ranges.first[steps], ranges.last[steps]
    thread_end = np.searchsorted(calls.axis, (calls.axis[inside] // calls.span + 1) * calls.span)
    last = np.minimum(np.append(inside[1:], thread_end[-1:]), thread_end)
    return Followers(inside, first, np.minimum(last, len(calls.order)))


def follow_steps(followers: Followers, instance: Array) -> int:
    """Write the steps' stages into `instance` of their followers that have none; return how many.

    A step that is no stage, or is inside of one, gives its followers none.
    """
    followed = 0
    columns = (followers.inside, followers.first, followers.last)
    for inside, first, last in zip(*(column.tolist() for column in columns), strict=True):
        chunk = instance[first:last]
        bare = chunk < 0
        chunk[bare] = instance[inside]
        followed += int(np.count_nonzero(bare)) if instance[inside] >= 0 else 0
    return followed
