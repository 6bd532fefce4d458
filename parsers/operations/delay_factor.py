"""The delay factor: a small oscillation of the time over a size, on a smooth roofline.

    t(x) = (t0 + ((x / r)^p + b^p)^(1/p)) (1 + A(x) cos(2 pi x / P + phase))

with a fixed time t0, a rate r, a floor b (what moving data takes at every size), a sharp or soft
ridge p, a period P and an amplitude A: constant (banks of DRAM, which turn with addresses), or
fading as 1 / x (waves of tiles: the last one that is not full weighs less the more there are).
Residuals of the smooth part are searched for the period that explains most of them, as Lomb
(1976) and Scargle (1982) do for unevenly spaced samples; how much chance explains is found by
shuffling them. Pure numpy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.predict.fit import Array, fit

LEAST_POINTS = 24
PERIODS = 400
LEAST_PERIODS = 3
"""The range of sizes holds at least so many periods: a longer one is a bend of the smooth part."""
SHUFFLES = 400
FOLDS = 5
CHANCE = 0.01
"""Share of shuffled residuals that may explain as much."""


@dataclass(frozen=True)
class DelayFactor:
    """The oscillation that explains most of what a smooth roofline leaves.

    `parameters`: t0, r, b, p - 1 of the smooth part. `amplitude` is relative, of a fading one
    after one period; `error` its standard error. `chance`: share of shuffled residuals that
    explain as much. `noise`: relative standard error of the times, root mean square. `without`,
    `with_it`: root mean square relative errors of sizes that were left out, each fifth in turn,
    without the factor and with it.
    """

    points: int
    parameters: tuple[float, ...]
    period: float
    amplitude: float
    error: float
    phase: float
    fades: bool
    chance: float
    noise: float
    without: float
    with_it: float

    @property
    def is_real(self) -> bool:
        """Whether chance and noise do not explain it, and sizes left out are predicted better."""
        above = self.amplitude - 2 * self.error > self.noise
        return above and self.chance <= CHANCE and self.with_it < self.without

    def at(self, sizes: Array) -> Array:
        """Return the seconds at sizes."""
        wave = self.amplitude * np.cos(2 * math.pi * sizes / self.period + self.phase)
        fading = _fading(sizes, self.period) if self.fades else 1.0
        return np.asarray(_smooth(sizes, np.array(self.parameters)) * np.exp(wave * fading))


def delay_factor(sizes: Array, seconds: Array, noise: Array) -> DelayFactor | None:
    """Return the strongest oscillation over sizes, real or not; None for too few sizes.

    Args:
        sizes: rising.
        seconds: of each.
        noise: relative standard error of each.
    """
    if len(sizes) < LEAST_POINTS:
        return None
    found = _Fit.to(sizes, seconds)
    random = np.random.default_rng(0)
    shuffled = random.permuted(np.tile(found.residuals, (SHUFFLES, 1)), axis=1)
    by_chance = np.max([((shuffled @ basis) ** 2).sum(1) for basis in _bases(sizes)[1]], axis=0)
    missed = []
    for fold in range(FOLDS):
        out = np.arange(len(sizes)) % FOLDS == fold
        rest = _Fit.to(sizes[~out], seconds[~out])
        logs = np.log(seconds[out] / _smooth(sizes[out], rest.parameters))
        missed.append(np.stack([logs, logs - rest.wave(sizes[out])]))
    without, with_it = np.sqrt(np.mean(np.concatenate(missed, axis=1) ** 2, axis=1))
    cosine, sine = found.weights
    rest_of = found.residuals - found.wave(sizes)
    basis = _waves(sizes, found.period, found.fades)
    spread = rest_of @ rest_of / (len(sizes) - 2) * np.linalg.inv(basis.T @ basis)
    return DelayFactor(
        points=len(sizes),
        parameters=tuple(map(float, found.parameters)),
        period=found.period,
        amplitude=float(np.hypot(cosine, sine)),
        error=float(math.sqrt(np.trace(spread) / 2)),
        phase=math.atan2(-sine, cosine),
        fades=found.fades,
        chance=float(np.mean(by_chance >= found.explained)),
        noise=float(np.sqrt(np.mean(noise**2))),
        without=float(without),
        with_it=float(with_it),
    )


@dataclass(frozen=True)
class _Fit:
    """A smooth roofline, and the wave that explains most of its residuals (in logarithms)."""

    parameters: Array
    residuals: Array
    period: float
    fades: bool
    weights: Array
    explained: float

    @classmethod
    def to(cls, sizes: Array, seconds: Array) -> _Fit:
        slope = float(seconds[-1] / sizes[-1])
        start = np.array([seconds[0] / 4, 1 / slope, seconds[0] / 2, 2.0])
        parameters = fit(lambda p: _smooth(sizes, p), seconds, np.ones(len(sizes)), start)
        residuals = np.log(seconds / _smooth(sizes, parameters))
        kinds, bases = _bases(sizes)
        explained = [float(((residuals @ basis) ** 2).sum()) for basis in bases]
        best = int(np.argmax(explained))
        period, fades = kinds[best]
        waves = _waves(sizes, period, fades)
        weights = np.asarray(np.linalg.lstsq(waves, residuals, rcond=None)[0], dtype=np.float64)
        return cls(parameters, residuals, period, fades, weights, explained[best])

    def wave(self, sizes: Array) -> Array:
        """Return what the wave adds to the logarithm of the time."""
        return np.asarray(_waves(sizes, self.period, self.fades) @ self.weights)


def _smooth(sizes: Array, parameters: Array) -> Array:
    fixed, rate, floor, sharp = parameters
    power = 1 + sharp
    return np.asarray(fixed + ((sizes / rate) ** power + floor**power) ** (1 / power))


def _fading(sizes: Array, period: float | Array) -> Array:
    return np.asarray(np.minimum(1.0, period / sizes))


def _waves(sizes: Array, period: float | Array, fades: bool) -> Array:
    """Return cosine and sine over the sizes, two columns; `period` may be a column of periods."""
    angles = 2 * math.pi * sizes / period
    envelope = _fading(sizes, period) if fades else np.ones(len(sizes))
    return np.stack([np.cos(angles) * envelope, np.sin(angles) * envelope], axis=-1)


def _bases(sizes: Array) -> tuple[list[tuple[float, bool]], Array]:
    """Return the periods and kinds that are tried, and an orthonormal basis of each."""
    shortest = 4 * float(np.median(np.diff(sizes)))
    longest = float(sizes[-1] - sizes[0]) / LEAST_PERIODS
    periods = np.geomspace(min(shortest, longest), longest, PERIODS)
    kinds = [(float(period), fades) for period in periods for fades in (False, True)]
    # All at once: one by one, numpy would take ten times as long as LAPACK.
    waves = [_waves(sizes, periods[:, None], fades) for fades in (False, True)]
    return kinds, np.linalg.qr(np.stack(waves, axis=1).reshape(len(kinds), -1, 2))[0]
