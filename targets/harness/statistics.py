"""Order statistics of the samples of a case, and the rule that ends the sampling. Only math."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
TUKEY = 1.5
STABLE_WINDOW = 32
"""Samples over which the noise must have stopped to fall; nvbench looks at 64."""
STABLE_SPREAD = 0.05
"""Relative standard deviation of the noise in that window that counts as stable (nvbench's)."""
PATIENCE = 5.0
"""The time limit waits for the smallest number of samples, but not longer than this many limits."""


@dataclass(frozen=True)
class Summary:
    """Statistics of a sample, in its unit.

    Attributes:
        std: with n - 1; None for a single value.
        ci_low: lower end of the 95 % confidence interval of the median by order statistics; None
            for fewer than 6 values, whose extremes do not cover 95 %.
        ci_high: its upper end.
        outliers: values more than 1.5 interquartile ranges outside the quartiles; they are counted
            and stay in all other numbers.
        relative_std: std over mean.
    """

    n: int
    median: float
    mean: float
    std: float | None
    min: float
    max: float
    p5: float
    p95: float
    iqr: float
    ci_low: float | None
    ci_high: float | None
    outliers: int
    relative_std: float | None


def summarize(values: Sequence[float]) -> Summary:
    """Return the statistics of at least one value.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values to summarize")
    ordered = sorted(values)
    q1, q3 = percentile(ordered, 25), percentile(ordered, 75)
    reach = TUKEY * (q3 - q1)
    low, high = median_interval(ordered)
    mean = math.fsum(ordered) / len(ordered)
    std = deviation(ordered)
    return Summary(
        n=len(ordered),
        median=percentile(ordered, 50),
        mean=mean,
        std=std,
        min=ordered[0],
        max=ordered[-1],
        p5=percentile(ordered, 5),
        p95=percentile(ordered, 95),
        iqr=q3 - q1,
        ci_low=low,
        ci_high=high,
        outliers=sum(1 for v in ordered if v < q1 - reach or v > q3 + reach),
        relative_std=None if std is None or mean == 0 else std / abs(mean),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted values, between two of them by line (numpy's default)."""
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation with n - 1, None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def median_interval(
    ordered: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float | None, float | None]:
    """Return a distribution-free confidence interval of the median of sorted values.

    The number of values below the median is binomial (n, 1/2), so that the k-th smallest and the
    k-th largest value enclose it with 1 - 2 P(B < k); the largest k that keeps the confidence is
    taken. Source: David and Nagaraja, Order Statistics, 3rd ed., section 7.1.
    """
    n = len(ordered)
    tail = (1 - confidence) / 2
    k, below = 0, math.exp(-n * math.log(2))
    term = below
    while below <= tail and k < n // 2:
        k += 1
        term *= (n - k + 1) / k
        below += term
    if k == 0:
        return None, None
    return ordered[k - 1], ordered[n - k]


class StopRule:
    """Says when enough samples were taken: low noise, noise that no longer falls, or the time.

    Modelled on nvbench's criterion `stdrel`; without its least time, because GPU time is dear.
    """

    def __init__(
        self, min_samples: int, max_noise: float, time_limit: float, max_samples: int
    ) -> None:
        self.min_samples = max(min_samples, 2)
        self.max_noise = max_noise
        self.time_limit = time_limit
        self.max_samples = max(max_samples, self.min_samples)
        self._n = 0
        self._mean = 0.0
        self._squares = 0.0
        self._noise: list[float] = []

    def add(self, value: float) -> None:
        """Take one more sample in (Welford's update of mean and variance)."""
        self._n += 1
        gap = value - self._mean
        self._mean += gap / self._n
        self._squares += gap * (value - self._mean)
        if self._n >= self.min_samples:
            self._noise.append(self.noise)

    @property
    def noise(self) -> float:
        """Relative standard deviation of all samples; infinite for fewer than two."""
        if self._n < 2 or self._mean <= 0:
            return math.inf
        return math.sqrt(self._squares / (self._n - 1)) / self._mean

    def reason(self, elapsed: float) -> str:
        """Return why to stop after `elapsed` seconds, "" to go on.

        "noise", "stable", "samples" (as many as are kept) or "time limit".
        """
        if self._n >= self.min_samples:
            if self.noise <= self.max_noise:
                return "noise"
            if self._stable():
                return "stable"
            if self._n >= self.max_samples:
                return "samples"
            if elapsed >= self.time_limit:
                return "time limit"
        return "time limit" if self._n and elapsed >= PATIENCE * self.time_limit else ""

    def _stable(self) -> bool:
        window = self._noise[-STABLE_WINDOW:]
        if len(window) < STABLE_WINDOW:
            return False
        spread = deviation(window) or 0.0
        return spread <= STABLE_SPREAD * (sum(window) / len(window))
