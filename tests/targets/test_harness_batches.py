"""How many copies a cold case rotates over, and that batches never stop rotating."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.targets.harness.batches import loop, slices
from nsight_prof.targets.harness.copies import (
    DISTINCT,
    MAX_COPIES,
    SELF_EVICTING,
    copies_for,
    shortfall,
)

L2 = 60 << 20
MANY = 140e9


@given(st.floats(1, 2 * SELF_EVICTING * L2))
def test_between_two_uses_of_a_buffer_others_fill_the_cache_three_times(footprint: float) -> None:
    copies = copies_for(footprint, L2, MANY)
    assert 1 <= copies <= MAX_COPIES
    cold = footprint >= SELF_EVICTING * L2 or (copies - 1) * footprint >= DISTINCT * L2
    assert cold == (shortfall(footprint, L2, copies) == "")
    assert cold or copies == MAX_COPIES


def test_one_copy_does_where_nothing_is_touched_or_a_call_flushes_the_cache() -> None:
    assert copies_for(0, L2, MANY) == 1
    assert copies_for(16 * L2, L2, MANY) == 1
    assert shortfall(0, L2, 1) == ""


def test_copies_fit_into_the_free_memory_and_the_record_says_what_is_missing() -> None:
    copies = copies_for(L2, L2, 3 * L2)
    assert copies == 1
    assert "0 times the L2 instead of 3" in shortfall(L2, L2, copies)
    assert copies_for(L2, L2, math.inf) == 4


@given(st.integers(1, MAX_COPIES), st.floats(1e-7, 0.1))
def test_graphs_hold_whole_rotations(copies: int, seconds: float) -> None:
    parts = slices(copies, seconds)
    assert parts[0].start == 0
    assert all(before.stop == after.start for before, after in pairwise(parts))
    assert all(len(part) > 0 for part in parts)
    assert parts[-1].stop % copies == 0


def test_a_loop_goes_on_where_the_last_sample_ended() -> None:
    seen: list[int] = []
    batches = loop([lambda i=i: seen.append(i) for i in range(3)], 0.5e-3, 1e-3)  # type: ignore[misc]
    assert batches.calls == 2
    for _ in range(3):
        assert batches.next() == 2
    assert seen == [0, 1, 2, 0, 1, 2]
