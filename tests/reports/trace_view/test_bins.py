"""Level of detail loses no time: busy time of bins is that of the events, item by item."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.parsers.nsys.bins import Array, Segments, coverage, reduced, single

EVENTS = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 300), st.integers(0, 3)), min_size=1, max_size=80
)


def columns(events: list[tuple[int, int, int]]) -> tuple[Array, Array, Array]:
    start, duration, item = (np.array(column, np.int64) for column in zip(*events, strict=True))
    return start, duration, item


@given(EVENTS, st.integers(1, 60))
def test_busy_time_and_events_of_each_item_stay(
    events: list[tuple[int, int, int]], most: int
) -> None:
    start, duration, item = columns(events)
    found = reduced(start, duration, item, most)
    for code in range(4):
        assert found.busy[found.item == code].sum() == duration[item == code].sum()
        assert found.count[found.item == code].sum() == (item == code).sum()
    assert (np.diff(found.start) >= 0).all()
    assert found.start.min() == start.min()


@given(EVENTS, st.integers(1, 60))
def test_a_bin_holds_what_lies_within_it(events: list[tuple[int, int, int]], most: int) -> None:
    start, duration, item = columns(events)
    found = reduced(start, duration, item, most)
    if not found.width:
        assert sorted(zip(found.start, found.duration, found.item, strict=True)) == sorted(events)
        return
    short = duration < found.width
    end = start + duration
    for begin, width, code, busy, count in zip(
        found.start, found.duration, found.item, found.busy, found.count, strict=True
    ):
        if (begin, width, code) in set(events) and width >= found.width:
            continue
        own = short & (item == code)
        inside = np.minimum(end, begin + width) - np.maximum(start, begin)
        assert busy == np.maximum(inside, 0)[own].sum()
        assert count == (own & (start >= begin) & (start < begin + width)).sum()


@given(EVENTS, st.integers(2, 50))
def test_coverage_adds_up_to_the_time_between_the_edges(
    events: list[tuple[int, int, int]], parts: int
) -> None:
    start, duration, item = columns(events)
    kinds = np.array([0, 1, 0, 1])
    edges = np.linspace(0, 5400, parts + 1)
    found = coverage(single(start, duration, item), kinds, edges)
    for kind in range(2):
        own = kinds[item] == kind
        assert found[kind].sum() == pytest.approx(duration[own].sum(), abs=1e-6)
        inside = np.minimum((start + duration)[:, None], edges[1:]) - np.maximum(
            start[:, None], edges[:-1]
        )
        expected = np.maximum(inside, 0)[own].sum(axis=0)
        assert found[kind] == pytest.approx(expected, abs=1e-6)


def test_a_million_launches_fit_what_is_asked_for() -> None:
    random = np.random.default_rng(1)
    duration = random.integers(500, 40_000, 1_000_000)
    start = np.cumsum(duration + random.integers(0, 3000, len(duration))) - duration
    item = np.arange(len(start)) % 40
    found = reduced(start, duration, item, 200_000)
    assert isinstance(found, Segments)
    assert 50_000 < len(found) <= 200_000
    assert found.width * len(found) / 40 < 2 * (start[-1] - start[0])
    assert found.busy.sum() == duration.sum()
