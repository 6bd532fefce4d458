"""Fits how a time grows with a size (batch, prompt length), and finds where growing sets in.

The law is t(n) = t0 + c max(0, n - k): a fixed part, and a cost of each further one beyond k, with
k = 0 for a time that grows from the start. It is the roofline of a batch: what is read once costs
t0, what each request adds costs c, and k is where the one no longer hides the other. k is kept only
where it leaves at most half of the error, so that no noise makes a k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]

MIN_SIZES = 4
"""Fewest sizes that a law of two parameters can be tested with."""
MIN_SIZES_BENT = 5
"""Fewest sizes for a law with k, which has three parameters."""
MAX_ERROR_LEFT = 0.5
"""A law with k is taken only if it leaves at most this part of the error."""
EXACT = 1e-3
"""Relative errors below this are as good as none: no k explains them."""
GRID = 200
"""Places of k that are tried, evenly on a logarithmic axis."""
MOST_UNEXPLAINED = 0.15
"""Root mean square of the relative residuals above which the law does not describe the data."""


@dataclass(frozen=True)
class Scaling:
    """The law of one sweep, with t in seconds.

    `residual` is the root mean square of model / measured - 1. `low` and `high` are the smallest
    and largest `bend` of the fits without any one of the sizes; NaN where these cannot be fitted.
    `first` and `last` are the smallest and largest size that was measured.
    """

    fixed_s: float
    each_s: float
    flat_until: float
    residual: float
    low: float
    high: float
    first: float
    last: float

    @property
    def bend(self) -> float:
        """Size from which on 1 % more of it brings less than 0.5 % more throughput n / t(n).

        d ln(n / t) / d ln n = 1 - n c / t falls to 1/2 at n = t0 / c - k, or jumps below it at k.
        Infinite where the time does not grow.
        """
        if self.each_s <= 0:
            return math.inf
        return max(self.flat_until, self.fixed_s / self.each_s - self.flat_until)

    @property
    def limit(self) -> float:
        """Throughput of an endless size, per second: 1 / c."""
        return 1 / self.each_s if self.each_s > 0 else math.inf

    @property
    def bend_measured(self) -> bool:
        """Whether the bend lies within the measured sizes."""
        return self.first <= self.bend <= self.last

    def at(self, size: float) -> float:
        """Return the seconds that the law gives for a size."""
        return self.fixed_s + self.each_s * max(0.0, size - self.flat_until)


def fit_scaling(sizes: Sequence[float], seconds: Sequence[float]) -> Scaling | None:
    """Return the law of these times; None for too few sizes, or where it does not describe them."""
    known = sorted(
        (float(n), float(t)) for n, t in zip(sizes, seconds, strict=True) if t > 0 and n > 0
    )
    if len({n for n, _ in known}) < MIN_SIZES:
        return None
    found = _best(known)
    if found is None or found.residual > MOST_UNEXPLAINED:
        return None
    without = [_best(known[:i] + known[i + 1 :]) for i in range(len(known))]
    bends = [law.bend for law in without if law is not None]
    low, high = (min(bends), max(bends)) if bends else (math.nan, math.nan)
    return replace(found, low=low, high=high)


def _best(known: list[tuple[float, float]]) -> Scaling | None:
    """Return the law without k, or the best one with k where that explains far more."""
    n = np.array([size for size, _ in known])
    t = np.array([time for _, time in known])
    linear = _solved(n, t, np.zeros(1))
    if linear is not None and (linear.residual < EXACT or len(n) < MIN_SIZES_BENT):
        return linear
    bent = _solved(n, t, np.geomspace(n[0], n[-2], GRID))
    if linear is None or (bent is not None and bent.residual <= MAX_ERROR_LEFT * linear.residual):
        return bent
    return linear


def _solved(n: Floats, t: Floats, tried: Floats) -> Scaling | None:
    """Return the least squares of the relative residuals for the best of the k that are tried.

    None where all have a t0 below 0. The column of k is made orthogonal to that of t0 first.
    """
    constant = 1 / t
    beyond = np.maximum(0.0, n - tried[:, None]) / t
    shared = beyond @ constant / (constant @ constant)
    orthogonal = beyond - shared[:, None] * constant
    length = np.sum(orthogonal**2, axis=1)
    each = np.maximum(np.sum(orthogonal, axis=1) / np.where(length > 0, length, math.inf), 0.0)
    fixed = np.sum(constant) / (constant @ constant) - each * shared
    errors = fixed[:, None] * constant + each[:, None] * beyond - 1
    residual = np.where(fixed > 0, np.sqrt(np.mean(errors**2, axis=1)), math.inf)
    best = int(np.argmin(residual))
    return None if fixed[best] <= 0 else Scaling(
        float(fixed[best]), float(each[best]), float(tried[best]), float(residual[best]),
        math.nan, math.nan, float(n[0]), float(n[-1]),
    )  # fmt: skip


def exponents(sizes: Sequence[float], seconds: Sequence[float]) -> list[tuple[float, float, float]]:
    """Return (from, to, exponent) of neighbouring sizes: ln(t2 / t1) / ln(n2 / n1).

    Doubling the size within such a pair multiplies the time by 2 to the exponent.
    """
    known = sorted((n, t) for n, t in zip(sizes, seconds, strict=True) if t > 0 and n > 0)
    return [
        (a, b, math.log(after / before) / math.log(b / a))
        for (a, before), (b, after) in zip(known, known[1:], strict=False)
        if b > a
    ]
