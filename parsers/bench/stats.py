"""Statistics of measured times: medians over processes, and intervals that cover their spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

Samples = np.ndarray[Any, np.dtype[np.float64]]

CONFIDENCE = 0.95
EXACT_UP_TO = 1000
"""Samples up to which the binomial distribution is summed; beyond it the normal one stands in."""


def known_median(samples: Sequence[float] | Samples) -> float:
    """Return the median of numbers that are known, in a fifth of the time of `numpy.median`."""
    ordered = np.sort(samples)
    half = len(ordered) // 2
    return float(ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def median_interval(samples: Samples) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median; NaN for fewer than 6 samples."""
    return quantile_interval(samples, 0.5)


def quantile_interval(samples: Samples, share: float) -> tuple[float, float]:
    """Return the 95 % confidence interval of the quantile `share`, by order statistics.

    [x(k), x(n+1-m)] with the largest k for which P(Binomial(n, share) < k) is at most 2.5 %, and
    the largest m for the same of 1 - share (David and Nagaraja, Order Statistics, 2003, section
    7.1); no shape of the distribution is assumed. NaN for too few samples to reach 95 %.
    """
    k, m = _rank(len(samples), share), _rank(len(samples), 1 - share)
    if min(k, m) < 1:
        return math.nan, math.nan
    ordered = np.sort(samples)
    return float(ordered[k - 1]), float(ordered[-m])


@cache
def _rank(n: int, share: float) -> int:
    tail = (1 - CONFIDENCE) / 2
    if n > EXACT_UP_TO:
        # Normal approximation with the 97.5 % quantile of the t distribution at many degrees.
        return int(n * share - t_quantile(n) * math.sqrt(n * share * (1 - share)))
    below, k = (1 - share) ** n, 0
    while below <= tail:
        k += 1
        below += math.comb(n, k) * share**k * (1 - share) ** (n - k)
    return k


def pooled_interval(processes: Sequence[Samples]) -> tuple[float, float]:
    """Return a 95 % interval of the median over fresh processes.

    Where the medians of the processes lie closer together than the interval within one, all samples
    are of one kind, and the interval is that of all of them. Where they lie further apart, the
    processes are the sample: the interval is the t interval of their medians, widened to hold the
    medians themselves and the median of all samples. It is taken of logarithms, for no time is
    negative.
    """
    pooled = np.concatenate(processes)
    low, high = median_interval(pooled)
    if len(processes) < 2:
        return low, high
    medians = np.array([known_median(samples) for samples in processes])
    intervals = [median_interval(samples) for samples in processes]
    within = max((b - a for a, b in intervals if not math.isnan(a)), default=0.0)
    if not math.isnan(low) and float(np.ptp(medians)) <= within:
        return low, high
    logs, of_all = np.log(medians), known_median(pooled)
    half = t_quantile(len(logs) - 1) * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    middle = float(logs.mean())
    return (
        min(math.exp(middle - half), float(medians.min()), of_all),
        max(math.exp(middle + half), float(medians.max()), of_all),
    )


def spread(values: Sequence[float]) -> float:
    """Return (largest - smallest) / median; NaN for fewer than two values."""
    known = np.array([value for value in values if not math.isnan(value)])
    if len(known) < 2:
        return math.nan
    return float(np.ptp(known) / known_median(known))


def median(values: Sequence[float]) -> float:
    """Return the median of the known values; NaN where none is known."""
    known = [value for value in values if not math.isnan(value)]
    return known_median(known) if known else math.nan


def largest(values: Sequence[float]) -> float:
    """Return the largest of the known values; NaN where none is known."""
    return max((value for value in values if not math.isnan(value)), default=math.nan)


@cache
def t_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Return the two-sided quantile of Student's t, of 95 % where nothing else is asked for.

    The probability within t is a finite sum in the angle atan(t / sqrt(degrees)) (Abramowitz and
    Stegun, 26.7.3 and 26.7.4); the angle is found by bisection.
    """
    # The sum needs one term a degree; at a thousand the quantile is within 0.1 % of the normal one.
    degrees = min(degrees, EXACT_UP_TO)
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        angle = (low + high) / 2
        low, high = (angle, high) if _within(angle, degrees) < confidence else (low, angle)
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _within(angle: float, degrees: int) -> float:
    """Return P(|T| < t) for t = sqrt(degrees) tan(angle)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2 == 1
    term = cosine if odd else 1.0
    total = 0.0
    for i in range(2 if odd else 1, degrees, 2):
        total += term
        term *= cosine * cosine * i / (i + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
