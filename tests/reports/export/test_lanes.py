"""No two events of a lane cross, whatever they are, and no more lanes are used than are needed."""

from collections import defaultdict
from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.reports.export.lanes import disjoint, nested

EVENTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 2)), max_size=40)
Event = tuple[int, int, int]


def columns(events: list[Event]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    start, length, track = (np.array([e[i] for e in events], np.int64) for i in range(3))
    return start, start + length, track


def lanes_of(events: list[Event], lane: np.ndarray) -> dict[tuple[int, int], list[Event]]:
    found: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event, number in zip(events, lane.tolist(), strict=True):
        found[event[2], number].append(event)
    return found


@given(EVENTS)
def test_disjoint_events_do_not_touch_each_other(events: list[Event]) -> None:
    for members in lanes_of(events, disjoint(*columns(events))).values():
        for (a, length_a, _), (b, length_b, _) in combinations(members, 2):
            assert a + length_a <= b or b + length_b <= a


@given(EVENTS)
def test_nested_events_lie_inside_each_other_or_apart(events: list[Event]) -> None:
    for members in lanes_of(events, nested(*columns(events))).values():
        for (a, length_a, _), (b, length_b, _) in combinations(members, 2):
            end_a, end_b = a + length_a, b + length_b
            apart = end_a <= b or end_b <= a
            assert apart or (a <= b and end_b <= end_a) or (b <= a and end_a <= end_b)


@given(EVENTS)
def test_no_more_lanes_than_events_at_one_time(events: list[Event]) -> None:
    """First fit in the order of start needs no more lanes than intervals lie over each other."""
    events = [(start, max(length, 1), track) for start, length, track in events]
    for track in {event[2] for event in events}:
        mine = [event for event in events if event[2] == track]
        most = max(sum(s <= at < s + n for s, n, _ in mine) for at, _, _ in mine)
        assert disjoint(*columns(mine)).max() + 1 == most


def test_what_nests_stays_on_the_first_lane() -> None:
    events = [(0, 100, 0), (0, 100, 0), (10, 20, 0), (10, 5, 0), (30, 70, 0), (100, 5, 0)]
    assert nested(*columns(events)).tolist() == [0] * 6


def test_what_crosses_gets_a_lane_of_its_own() -> None:
    events = [(0, 10, 0), (5, 10, 0), (12, 2, 0), (20, 1, 0)]
    assert nested(*columns(events)).tolist() == [0, 1, 0, 0]
    assert disjoint(*columns(events)).tolist() == [0, 1, 0, 0]
