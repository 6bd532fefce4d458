"""Intervals of ratios: against SciPy, and by how often they miss what is known."""

import math
from typing import Any

import numpy as np
import pytest

from nsight_prof.reports.compare import noise
from nsight_prof.reports.compare.noise import Ratio
from nsight_prof.reports.page import Text


@pytest.fixture(scope="module")
def stats() -> Any:
    """It takes a second to import, and every worker collects every file."""
    return pytest.importorskip("scipy.stats")


BASIS = Text("launches")


def test_runs_against_scipys_welch_interval(stats: Any) -> None:
    random = np.random.default_rng(1)
    a, b = np.exp(random.normal(0, 0.02, 6)), np.exp(random.normal(0.05, 0.04, 4))
    ratio = noise.of_runs(a, b)
    expected = stats.ttest_ind(np.log(b), np.log(a), equal_var=False).confidence_interval(0.95)
    # Degrees of freedom are rounded down here, so the interval is a little wider.
    assert math.log(ratio.low) == pytest.approx(expected.low, abs=0.004)
    assert math.log(ratio.high) == pytest.approx(expected.high, abs=0.004)
    assert math.log(ratio.low) <= expected.low
    assert math.log(ratio.high) >= expected.high


def test_one_run_against_several_takes_their_spread(stats: Any) -> None:
    a, b = np.array([1.00, 1.02, 0.98, 1.01]), np.array([1.05])
    ratio = noise.of_runs(a, b)
    logs = np.log(a)
    half = stats.t.ppf(0.975, 3) * logs.std(ddof=1) * math.sqrt(1 / 4 + 1)
    assert math.log(ratio.high / ratio.low) / 2 == pytest.approx(half, rel=1e-6)


@pytest.mark.parametrize("paired", [True, False])
def test_launches_miss_the_truth_as_often_as_they_say(paired: bool) -> None:
    """Launches of sizes that differ by far: pairs take the sizes out, so the interval is narrow."""
    random = np.random.default_rng(2)
    missed, widths = 0, []
    for _ in range(400):
        sizes = random.choice([1e3, 1e4], 40)
        a = sizes * random.normal(1, 0.01, 40)
        other = sizes if paired else random.choice([1e3, 1e4], 41)
        b = 1.03 * other * random.normal(1, 0.01, len(other))
        ratio = noise.of_launches(a, b, 0.0)
        missed += not ratio.low <= 1.03 <= ratio.high
        widths.append(math.log(ratio.high / ratio.low))
    assert missed / 400 < 0.09
    assert np.median(widths) < 0.02 if paired else np.median(widths) > 0.2


def test_a_sum_is_as_sure_as_its_parts_together() -> None:
    part = Ratio(1.1, 1.0, 1.21, BASIS)
    one = noise.of_sums([(10.0, 11.0, part)], 0.0)
    assert (one.value, one.low, one.high) == pytest.approx((1.1, 1.0, 1.21))
    many = noise.of_sums([(10.0, 11.0, part)] * 4, 0.0)
    assert math.log(many.high / many.low) == pytest.approx(math.log(1.21) / 2)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (Ratio(1.05, 1.04, 1.06, BASIS), "slower"),
        (Ratio(0.95, 0.94, 0.96, BASIS), "faster"),
        (Ratio(1.05, 0.99, 1.11, BASIS), "same"),
        (Ratio(1.015, 1.01, 1.02, BASIS, 0.02), "same"),  # runs differ by as much
        (Ratio(1.05, floor=0.02), "unknown"),  # a single launch
        (Ratio(1.01, floor=0.02), "same"),
        (Ratio(1.5, floor=0.02), "slower"),
        (noise.UNKNOWN, "unknown"),
    ],
)
def test_verdicts(ratio: Ratio, verdict: str) -> None:
    assert ratio.verdict == verdict


def test_nothing_to_compare_is_unknown() -> None:
    none, one = np.array([]), np.array([1.0])
    assert math.isnan(noise.of_runs(none, one).value)
    assert math.isnan(noise.of_launches(one, np.array([0.0]), 0.02).value)
    assert math.isnan(noise.of_sums([], 0.0).value)
    assert math.isnan(noise.of_totals([[], []], 0.0).value)
    assert noise.of_runs(one, one).value == 1.0
    assert not noise.of_runs(one, one).known
