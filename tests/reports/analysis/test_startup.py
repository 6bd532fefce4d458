"""Idle time that comes once, before all kernels that repeat have run."""

import pandas as pd
import pytest

from nsight_prof.reports.analysis.timeline import startup_ns


def launches(*rows: tuple[str, int]) -> pd.DataFrame:
    """Launches of 10 ns each of these kernels, each after a gap of so many ns."""
    end, found = 0, []
    for kernel, gap in rows:
        start = end + gap
        end = start + 10
        found.append((kernel, start, 10, end, 0))
    columns = ["kernel_id", "start_ns", "duration_ns", "end_ns", "gpu"]
    return pd.DataFrame(found, columns=columns)


STEP = [("a", 5), ("b", 20)]


def test_gaps_before_the_first_step_and_within_it_come_once() -> None:
    frame = launches(("init", 0), ("a", 1000), ("b", 300), *STEP * 10)
    assert startup_ns(frame) == 1300


def test_a_gap_as_long_as_later_ones_is_one_of_the_steps() -> None:
    frame = launches(("init", 0), ("a", 1000), ("b", 20), *STEP * 10)
    assert startup_ns(frame) == 1000


def test_short_gaps_of_the_first_round_count_beyond_those_of_as_many_later_launches() -> None:
    first = ("init", 0), ("a", 1000), *[("search", 15)] * 4, ("b", 20)
    frame = launches(*first, ("a", 20), ("b", 0), *[("a", 0), ("b", 0)] * 19)
    # The first round has 1,080 ns in 6 gaps; each of the 40 gaps after it has 0.5 ns on average.
    assert startup_ns(frame) == 1080 - 6 * 0.5


@pytest.mark.parametrize(
    "rows",
    [
        [(f"of length {n}", 1000) for n in range(20)],  # no kernel repeats
        [*STEP * 3, ("late", 1000), *[("late", 5)] * 5],  # the last kernel comes late
    ],
)
def test_without_a_first_round_nothing_comes_once(rows: list[tuple[str, int]]) -> None:
    assert startup_ns(launches(*rows)) == 0
