"""Says whether a ratio of two times differs from 1 by more than chance: intervals of ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nsight_prof.parsers.bench.stats import t_quantile
from nsight_prof.reports.compare import threshold
from nsight_prof.reports.page import Text

Spread = tuple[int, float, float]
"""Launches, their total time, and the standard deviation of one."""
Values = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Ratio:
    """B over A with its 95 % interval; NaN where unknown. `basis` says what the interval is from.

    `floor`: the least relative difference that may be called one, where the basis cannot show how
    much runs differ from each other; 0 where it can.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    basis: Text | None = None
    floor: float = 0.0

    @property
    def known(self) -> bool:
        """Whether an interval could be made."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def verdict(self) -> str:
        """Return faster, slower, same (within the noise), or unknown, for a time.

        One launch or run each has no interval: only a large difference is one then.
        """
        if math.isnan(self.value):
            return "unknown"
        if not self.known and self.floor <= abs(self.value - 1) < threshold("single"):
            return "unknown"
        if not self.differs:
            return "same"
        return "slower" if self.value > 1 else "faster"

    @property
    def differs(self) -> bool:
        """Whether the difference is larger than the noise; a ratio without interval differs."""
        if math.isnan(self.value) or abs(self.value - 1) < self.floor:
            return False
        return not self.known or not self.low <= 1 <= self.high

    def times(self, factor: float) -> Ratio:
        """Return the ratio with its interval times a factor, as per unit of work."""
        ends = (self.value * factor, self.low * factor, self.high * factor)
        return Ratio(*ends, self.basis, self.floor)


UNKNOWN = Ratio(math.nan)


def of_runs(a: Values, b: Values) -> Ratio:
    """Return the ratio of means of whole runs, `a` and `b` with one value per run.

    Welch's t interval of the difference of the logarithms, which is the interval of the ratio.
    Where one side has a single run, the spread of the other stands for both (pooled t).
    """
    if not _usable(a, b):
        return UNKNOWN
    basis = Text("{a} and {b} runs", a=len(a), b=len(b))
    logs = [np.log(side) for side in (a, b)]
    middle = float(logs[1].mean() - logs[0].mean())
    if len(a) < 2 and len(b) < 2:
        return Ratio(math.exp(middle))
    if min(len(a), len(b)) < 2:
        spread = logs[0] if len(a) > 1 else logs[1]
        error = float(spread.std(ddof=1)) * math.sqrt(1 / len(a) + 1 / len(b))
        return _interval(middle, error, len(spread) - 1, basis)
    return _welch(middle, [_moments(side) for side in logs], basis)


def of_launches(a: Values, b: Values, floor: float) -> Ratio:
    """Return the ratio of mean durations of launches within one run each.

    As many launches on both sides are pairs: the k-th of A and the k-th of B do the same work, so
    the spread is that of their differences (paired t). Else Welch's interval by the delta method:
    variance of ln(mean) ~ s^2 / (n mean^2).
    """
    if not _usable(a, b):
        return UNKNOWN
    middle = math.log(float(b.mean()) / float(a.mean()))
    if len(a) == len(b) > 1:
        residual = b / b.mean() - a / a.mean()
        error = float(residual.std(ddof=1)) / math.sqrt(len(a))
        found = _interval(middle, error, len(a) - 1, Text("{n} pairs of launches", n=len(a)))
    elif min(len(a), len(b)) > 1:
        sides = [_moments(side / side.mean()) for side in (a, b)]
        found = _welch(middle, sides, _launches(len(a), len(b)))
    else:
        found = Ratio(math.exp(middle))
    return _of_few(found, min(len(a), len(b)), floor)


def of_totals(groups: Sequence[Sequence[Spread]], floor: float) -> Ratio:
    """Return the ratio of the total times of two groups, kernels of A and of B, in one run each.

    The number of launches is exact; the error of a total is that of its launches, sqrt(sum n s^2).
    """
    totals = [sum(total for _, total, _ in side) for side in groups]
    if not min(totals, default=0.0) > 0:
        return UNKNOWN
    middle = math.log(totals[1] / totals[0])
    sides = []
    for side, total in zip(groups, totals, strict=True):
        squared = sum(calls * spread**2 for calls, _, spread in side if not math.isnan(spread))
        calls = sum(calls for calls, _, spread in side if not math.isnan(spread))
        sides.append((squared / total**2, calls))
    if min(calls for _, calls in sides) < 2:
        return Ratio(math.exp(middle), floor=floor)
    found = _welch(middle, sides, _launches(sides[0][1], sides[1][1]))
    return _of_few(found, min(calls for _, calls in sides), floor)


def _launches(a: int, b: int) -> Text:
    return Text("{a} and {b} launches", a=a, b=b)


def _of_few(found: Ratio, launches: int, floor: float) -> Ratio:
    """Return the ratio with its floor, and without an interval that is wider than no interval.

    Of two launches it is thirteen standard errors wide; where both do different work, as two
    products by one kernel, that says nothing of the noise.
    """
    if launches == 2 and found.known and found.high / found.value - 1 > threshold("single"):
        return Ratio(found.value, floor=floor)
    return Ratio(found.value, found.low, found.high, found.basis, floor)


def of_intervals(
    a: tuple[float, float, float], b: tuple[float, float, float], basis: Text, floor: float = 0.0
) -> Ratio:
    """Return the ratio of two values that each come as (value, low, high) of a 95 % interval.

    The half widths of the logarithms add in quadrature, as errors of independent values do.
    """
    if not (a[0] > 0 and b[0] > 0):
        return UNKNOWN
    middle = math.log(b[0] / a[0])
    ends = (*a[1:], *b[1:])
    if not all(end > 0 for end in ends):
        return Ratio(math.exp(middle), floor=floor)
    below = math.hypot(math.log(b[0] / b[1]), math.log(a[2] / a[0]))
    above = math.hypot(math.log(b[2] / b[0]), math.log(a[0] / a[1]))
    return Ratio(math.exp(middle), math.exp(middle - below), math.exp(middle + above), basis, floor)


def of_sums(terms: Sequence[tuple[float, float, Ratio]], floor: float) -> Ratio:
    """Return the ratio of two sums from their terms (time in A, time in B, ratio of the term).

    A term that is on both sides and has no interval of its own is as sure as single launches are;
    one that is on one side only counts as exact. Errors of terms are taken as independent; what
    all share (clock, heat) is in `floor`.
    """
    total_a, total_b = sum(p[0] for p in terms), sum(p[1] for p in terms)
    if not (total_a > 0 and total_b > 0):
        return UNKNOWN
    squares = 0.0
    for _, time_b, ratio in terms:
        if ratio.known:
            squares += (time_b * math.log(ratio.high / ratio.low) / 2) ** 2
        elif not math.isnan(ratio.value):
            squares += (time_b * threshold("single")) ** 2
    half, value = math.sqrt(squares) / total_b, total_b / total_a
    if not any(ratio.known for _, _, ratio in terms):
        return Ratio(value, floor=floor)
    ends = value * math.exp(-half), value * math.exp(half)
    return Ratio(value, *ends, Text("launches"), floor)


def middle(runs: Values) -> float:
    """Return the geometric mean of runs, of which `of_runs` gives the ratio; 0 where any is 0."""
    return float(np.exp(np.log(runs).mean())) if (runs > 0).all() else 0.0


def _usable(a: Values, b: Values) -> bool:
    return bool(len(a) and len(b) and (a > 0).all() and (b > 0).all())


def _moments(values: Values) -> tuple[float, int]:
    """Return the squared error of the mean, and the number of values."""
    return float(values.var(ddof=1)) / len(values), len(values)


def _welch(middle: float, sides: Sequence[tuple[float, int]], basis: Text | None) -> Ratio:
    """Return Welch's interval; degrees of freedom by Welch and Satterthwaite, rounded down."""
    a, b = sides
    squared = a[0] + b[0]
    below = a[0] ** 2 / (a[1] - 1) + b[0] ** 2 / (b[1] - 1)
    degrees = squared**2 / below if below > 0 else a[1] + b[1] - 2
    return _interval(middle, math.sqrt(squared), int(degrees), basis)


def _interval(middle: float, error: float, degrees: int, basis: Text | None) -> Ratio:
    half = t_quantile(max(1, degrees)) * error
    low, high = middle - half, middle + half
    # One pair of runs that scatter widely: an interval beyond all numbers says nothing.
    if half > 50:
        return Ratio(math.exp(middle))
    return Ratio(math.exp(middle), math.exp(low), math.exp(high), basis)
