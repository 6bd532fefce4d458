import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.parsers.bench.stats import (
    median_interval,
    pooled_interval,
    quantile_interval,
    spread,
    t_quantile,
)


@pytest.fixture(scope="module")
def stats() -> Any:
    """It takes a second to import, and every worker collects every file."""
    return pytest.importorskip("scipy.stats")


def test_the_t_quantile_is_that_of_scipy(stats: Any) -> None:
    degrees = [*range(1, 31), 99, 1000]
    oracle = dict(zip(degrees, stats.t.ppf(0.975, degrees), strict=True))
    assert {each: t_quantile(each) for each in degrees} == pytest.approx(oracle, rel=1e-9)


def test_the_order_statistics_are_the_narrowest_that_reach_95_per_cent(stats: Any) -> None:
    for n in (*range(6, 60), 100, 1000):
        low, high = median_interval(np.arange(1.0, n + 1))
        k = int(low)
        assert high == n + 1 - k, n
        covered, narrower = 1 - 2 * stats.binom.cdf([k - 1, k], n, 0.5)
        assert covered >= 0.95 > narrower, n


@pytest.mark.parametrize(
    ("n", "share"), [(73, 0.95), (150, 0.95), (500, 0.95), (500, 0.5), (20, 0.5)]
)
def test_the_interval_of_a_quantile_is_that_of_scipy(n: int, share: float, stats: Any) -> None:
    samples = np.arange(1.0, n + 1)
    oracle = stats.quantile_test(samples, p=share).confidence_interval(0.95)
    assert quantile_interval(samples, share) == (oracle.low, oracle.high)


def test_few_samples_have_no_interval_of_a_high_quantile() -> None:
    assert all(map(math.isnan, quantile_interval(np.arange(32.0), 0.95)))


def test_many_samples_are_taken_as_normal(stats: Any) -> None:
    low, _ = median_interval(np.arange(1.0, 5001))
    assert low == pytest.approx(stats.binom.ppf(0.025, 5000, 0.5), abs=2)


def test_too_few_samples_have_no_interval() -> None:
    assert all(map(math.isnan, median_interval(np.arange(5.0))))


def test_processes_that_agree_are_pooled() -> None:
    random = np.random.default_rng(1)
    processes = [random.normal(1, 0.01, 50) for _ in range(3)]
    assert pooled_interval(processes) == median_interval(np.concatenate(processes))


def test_processes_that_disagree_are_the_sample(stats: Any) -> None:
    random = np.random.default_rng(1)
    processes = [random.normal(middle, 0.001, 50) for middle in (1.0, 1.1, 1.2)]
    medians = [float(np.median(p)) for p in processes]
    low, high = pooled_interval(processes)
    logs = np.log(medians)
    half = stats.t.ppf(0.975, 2) * logs.std(ddof=1) / math.sqrt(3)
    assert (low, high) == pytest.approx(
        (math.exp(logs.mean() - half), math.exp(logs.mean() + half))
    )


def test_the_interval_covers_the_truth_where_processes_vary() -> None:
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(400):
        middles = random.normal(1.0, 0.02, 3)
        low, high = pooled_interval([random.normal(m, 0.002, 20) for m in middles])
        covered += low <= 1.0 <= high
    assert covered / 400 > 0.93


@given(st.lists(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=30), min_size=1, max_size=6))
def test_the_median_lies_in_its_interval(values: list[list[float]]) -> None:
    processes = [np.array(v) for v in values]
    low, high = pooled_interval(processes)
    middle = float(np.median(np.concatenate(processes)))
    assert (math.isnan(low) and math.isnan(high)) or low <= middle <= high


def test_a_spread_needs_two_values() -> None:
    assert math.isnan(spread([1.0]))
    assert math.isnan(spread([1.0, math.nan]))
    assert spread([1.0, 1.1, 1.2]) == pytest.approx(0.2 / 1.1)
