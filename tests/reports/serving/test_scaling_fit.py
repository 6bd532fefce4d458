"""The law of a sweep: known laws are found again, with noise within what the fit says."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.reports.serving.scaling_fit import exponents, fit_scaling

BATCHES = (1, 4, 8, 16, 32, 64, 128)


@given(st.floats(1e-3, 10), st.floats(1.0, 1e3))
def test_a_linear_law_bends_where_both_parts_are_equal(fixed: float, ratio: float) -> None:
    each = fixed / ratio
    found = fit_scaling(BATCHES, [fixed + each * b for b in BATCHES])
    assert found is not None
    assert found.flat_until == 0
    assert found.bend == pytest.approx(ratio, rel=1e-6)
    assert found.low == pytest.approx(ratio, rel=1e-6)
    assert found.limit == pytest.approx(1 / each, rel=1e-6)
    assert found.bend_measured == (1 <= found.bend <= 128)
    # The definition itself: there 1 % more requests give 0.5 % more a second.
    b = found.bend
    gain = (1.001 * b / found.at(1.001 * b)) / (b / found.at(b))
    assert math.log(gain) / math.log(1.001) == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("knee", [20.0, 40.0])
def test_a_flat_start_with_proportional_growth_bends_at_its_end(knee: float) -> None:
    found = fit_scaling(BATCHES, [5e-3 * max(1.0, b / knee) for b in BATCHES])
    assert found is not None
    assert found.flat_until == pytest.approx(knee, rel=0.05)
    assert found.bend == pytest.approx(knee, rel=0.05)


def test_noise_stays_inside_of_what_is_told() -> None:
    random.seed(1)
    inside = 0
    for _ in range(40):
        times = [(0.6 + 0.014 * b) * random.gauss(1, 0.01) for b in BATCHES]
        found = fit_scaling(BATCHES, times)
        assert found is not None
        assert found.bend == pytest.approx(0.6 / 0.014, rel=0.25)
        inside += found.low <= found.bend <= found.high
    assert inside >= 30


def test_what_does_not_grow_has_no_bend_and_what_is_no_law_no_fit() -> None:
    flat = fit_scaling(BATCHES, [1.0] * 7)
    assert flat is not None
    assert math.isinf(flat.bend)
    assert not flat.bend_measured
    assert fit_scaling((1, 2, 4), (1.0, 2.0, 3.0)) is None
    assert fit_scaling(BATCHES, (1, 9, 1, 9, 1, 9, 1)) is None
    assert fit_scaling((), ()) is None


@given(st.floats(0.1, 3.0), st.floats(1e-4, 1.0))
def test_exponents_are_those_of_a_power_law(power: float, scale: float) -> None:
    found = exponents((10, 50, 200, 1000), [scale * n**power for n in (10, 50, 200, 1000)])
    assert [(a, b) for a, b, _ in found] == [(10, 50), (50, 200), (200, 1000)]
    assert all(exponent == pytest.approx(power) for _, _, exponent in found)
