"""The delay factor: found where there is one, not told where there is noise alone."""

from __future__ import annotations

import numpy as np
import pytest

from nsight_prof.parsers.operations.delay_factor import LEAST_POINTS, DelayFactor, delay_factor
from nsight_prof.parsers.predict.fit import Array

SIZES = np.arange(16.0, 2048.0, 16.0)


def made(amplitude: float, *, fades: bool = False, noise: float = 0.004, seed: int = 0) -> Array:
    """Return times of a smooth roofline with a wave of period 264 and noise."""
    smooth = 3e-6 + ((SIZES / 1e7) ** 3 + 2e-5**3) ** (1 / 3)
    envelope = np.minimum(1.0, 264.0 / SIZES) if fades else 1.0
    wave = amplitude * envelope * np.cos(2 * np.pi * SIZES / 264.0 + 0.7)
    random = np.random.default_rng(seed)
    return np.asarray(smooth * np.exp(wave + noise * random.standard_normal(len(SIZES))))


def found(times: Array, noise: float = 0.004) -> DelayFactor:
    factor = delay_factor(SIZES, times, np.full(len(SIZES), noise))
    assert factor is not None
    return factor


@pytest.mark.parametrize("fades", [False, True])
def test_a_wave_is_found_with_its_period_and_amplitude(fades: bool) -> None:
    factor = found(made(0.05, fades=fades))
    assert factor.is_real
    assert factor.fades is fades
    assert factor.period == pytest.approx(264, rel=0.03)
    assert abs(factor.amplitude - 0.05) < 4 * factor.error + 0.004
    assert factor.with_it < 0.6 * factor.without


def test_it_gives_the_times_back() -> None:
    times = made(0.05)
    missed = found(times).at(SIZES) / times - 1
    assert float(np.sqrt(np.mean(missed**2))) < 0.012


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_not_taken_for_a_wave(seed: int) -> None:
    assert not found(made(0.0, seed=seed)).is_real


def test_a_wave_below_the_noise_is_not_told() -> None:
    assert not found(made(0.002, noise=0.01), noise=0.01).is_real


def test_too_few_sizes_tell_nothing() -> None:
    few = SIZES[: LEAST_POINTS - 1]
    assert delay_factor(few, few * 1e-6, np.full(len(few), 0.01)) is None
