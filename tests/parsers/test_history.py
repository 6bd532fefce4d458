"""Changes in series of results: what was planted is found, and nothing where nothing changed."""

import numpy as np
import pytest
from numpy.typing import NDArray

from nsight_prof.parsers.history.changes import FEWEST, changes

NOISE = 0.003
RUNS = 200


def measured(kind: str, seed: int) -> NDArray[np.float64]:
    """Times of 200 runs of one commit, around 1 s, that differ by about 0.3 %."""
    random = np.random.default_rng(seed)
    if kind == "normal":
        logs = random.normal(0, NOISE, RUNS)
    elif kind == "outliers":
        logs = random.standard_t(3, RUNS) * NOISE / np.sqrt(3)
    elif kind == "one-sided":
        logs = random.exponential(NOISE, RUNS)
    else:  # each run is in part like the one before it
        logs, steps = np.zeros(RUNS), random.normal(0, NOISE, RUNS)
        for n in range(RUNS):
            logs[n] = 0.5 * logs[n - 1] * (n > 0) + steps[n]
    times: NDArray[np.float64] = np.exp(logs)
    return times


KINDS = ("normal", "outliers", "one-sided", "persistent")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_200_runs_of_one_commit_raise_no_alarm_whenever_asked(kind: str, seed: int) -> None:
    times = measured(kind, seed)
    for count in range(FEWEST, RUNS + 1, 8):
        assert changes(times[:count].tolist()) == [], count


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_one_per_cent_is_found_at_its_run(kind: str, seed: int) -> None:
    times = measured(kind, seed)
    times[100:] *= 1.01
    (found,) = changes(times.tolist())
    assert abs(found.index - 100) <= 4
    assert found.relative == pytest.approx(0.01, abs=0.002)
    # A gate that is asked after each run knows of it soon, unless runs are like those before them.
    soon = 200 if kind == "persistent" else 140
    assert any(change.relative > 0 for change in changes(times[:soon].tolist()))


@pytest.mark.parametrize("seed", range(6))
def test_days_that_differ_are_no_change_of_the_program(seed: int) -> None:
    random = np.random.default_rng(seed)
    days = np.repeat(random.normal(0, NOISE, RUNS // 8), 8)
    times = np.exp(days + random.normal(0, NOISE, RUNS))
    for count in range(4 * FEWEST, RUNS + 1, 24):
        assert changes(times[:count].tolist()) == [], count
    times[80:] *= 1.03
    (found,) = changes(times.tolist())
    assert abs(found.index - 80) <= 8


def test_what_came_and_went_is_two_changes() -> None:
    times = measured("normal", 5)
    times[60:120] *= 1.03
    first, second = changes(times.tolist())
    assert (abs(first.index - 60) <= 1, abs(second.index - 120) <= 1) == (True, True)
    assert first.relative == pytest.approx(0.03, abs=0.003)
    assert second.relative == pytest.approx(-0.029, abs=0.003)


def test_of_few_runs_and_of_small_changes_nothing_is_said() -> None:
    times = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
    assert changes(times) == []
    assert [change.index for change in changes([*times, 2.0])] == [4]
    assert changes([1.0] * 20 + [1.004] * 20) == []
    assert changes([1.0] * 20 + [1.004] * 20, threshold=0.003)[0].index == 20
    assert changes([1.0, 0.0] * 8) == []
