"""Statistics of samples, held to numpy, scipy and hand-worked cases; the rule that ends them."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.targets.harness.statistics import StopRule, median_interval, summarize

VALUES = st.lists(st.floats(1e-7, 1e3), min_size=2, max_size=80)


@given(VALUES)
def test_the_summary_is_numpys(values: list[float]) -> None:
    found = summarize(values)
    q1, q3 = np.percentile(values, [25, 75])
    assert found.n == len(values)
    assert found.median == pytest.approx(np.median(values))
    assert found.mean == pytest.approx(np.mean(values))
    assert found.std == pytest.approx(np.std(values, ddof=1), rel=1e-6, abs=1e-12)
    assert (found.min, found.max) == (min(values), max(values))
    assert [found.p5, found.p95] == pytest.approx(list(np.percentile(values, [5, 95])))
    assert found.iqr == pytest.approx(q3 - q1, abs=1e-12)


@pytest.fixture(scope="module")
def binomial() -> Any:
    return pytest.importorskip("scipy.stats", reason="scipy is not installed").binom


@given(n=st.integers(6, 400))
def test_the_interval_of_the_median_covers_what_the_binomial_says(binomial: Any, n: int) -> None:
    low, high = median_interval(list(range(1, n + 1)))
    assert low is not None
    assert high is not None
    k = int(low)
    assert high == n + 1 - k
    assert 1 - 2 * binomial.cdf(k - 1, n, 0.5) >= 0.95  # it covers enough
    if k < n // 2:
        assert 1 - 2 * binomial.cdf(k, n, 0.5) < 0.95  # and a narrower one would not


def test_the_interval_of_the_median_is_the_textbooks() -> None:
    # Conover, Practical Nonparametric Statistics: n = 10 gives the 2nd and the 9th value.
    assert median_interval(list(range(1, 11))) == (2, 9)
    assert median_interval(list(range(1, 21))) == (6, 15)


def test_few_values_have_no_interval() -> None:
    # 1 - 2 / 2^5 = 93.75 %: even the extremes of five values do not cover 95 %.
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) == (None, None)
    found = summarize([3.0])
    assert (found.median, found.std, found.relative_std, found.ci_low) == (3.0, None, None, None)


def test_outliers_are_counted_and_kept() -> None:
    found = summarize([1.0] * 4 + [1.1] * 4 + [9.0])
    assert found.outliers == 1
    assert found.max == 9.0
    assert found.n == 9


def test_nothing_cannot_be_summarized() -> None:
    with pytest.raises(ValueError, match="no values"):
        summarize([])


def rule(**limits: float) -> StopRule:
    settings = {"min_samples": 10, "max_noise": 0.005, "time_limit": 1.0, "max_samples": 500}
    return StopRule(**(settings | limits))  # type: ignore[arg-type]


def test_low_noise_ends_the_sampling_but_not_before_the_least_samples() -> None:
    stop = rule()
    for number in range(10):
        assert stop.reason(0.0) == ""
        stop.add(1.0 + 1e-4 * (number % 2))
    assert stop.reason(0.0) == "noise"


def test_noise_that_stays_ends_the_sampling() -> None:
    stop = rule()
    taken = 0
    while not stop.reason(0.0):
        stop.add(1.0 + 0.1 * (-1) ** taken)
        taken += 1
    assert stop.reason(0.0) == "stable"
    assert taken < 100
    assert stop.noise == pytest.approx(
        np.std([1.1, 0.9] * (taken // 2) + [1.1] * (taken % 2), ddof=1)
        / np.mean([1.1, 0.9] * (taken // 2) + [1.1] * (taken % 2))
    )


def test_noise_that_falls_goes_on_until_the_time_is_over() -> None:
    stop = rule(max_noise=1e-9)
    stop.add(2.0)  # one slow call, whose weight falls with every other
    for _ in range(20):
        stop.add(1.0)
    assert stop.reason(0.5) == ""
    assert stop.reason(1.0) == "time limit"


def test_the_time_limit_waits_for_the_least_samples_a_while() -> None:
    stop = rule()
    stop.add(1.0)
    assert stop.reason(2.0) == ""
    assert stop.reason(5.0) == "time limit"


def test_no_samples_have_no_noise() -> None:
    assert math.isinf(rule().noise)
    assert rule().reason(100.0) == ""
