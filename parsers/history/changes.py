"""Finds where a series of measurements changed: at which run, from what to what.

The largest difference between runs before and after a point, over windows of several lengths, is a
change where it is far beyond what the runs differ by otherwise; then the same is asked of both
parts (binary segmentation). The bar is so high that asking again after each run raises no false
alarm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Logs = NDArray[np.float64]

FEWEST = 8
"""Runs of a series from which on anything is said of it."""
SIDE = 4
"""Runs before and after a change at least."""
WINDOWS = (8, 24, 72, 1 << 30)
"""Runs on each side that are compared: what came and went must not hide in a longer level."""
BAR = 6.0
"""Standard errors that a change is beyond. By chance 5.2 is reached once in ten million; the sample
of few runs and being asked after each of them take the rest."""
LEAST = 0.005
"""Relative change from which on it matters."""
BLOCKS = (1, 2, 4, 8)
"""Runs whose means are compared with those of as many after them, to learn how runs differ."""
QUIET = 1 / 3
"""Quantile of these differences that noise is read from: a change is in the larger ones."""
FINEST = 1e-4
"""Relative noise that is assumed at least: times are recorded in steps."""


@dataclass(frozen=True)
class Change:
    """At run `index` (0-based) a series went from the level `before` to `after` (medians)."""

    index: int
    before: float
    after: float

    @property
    def relative(self) -> float:
        """The change over what was before."""
        return self.after / self.before - 1


def changes(values: Sequence[float], threshold: float = LEAST) -> list[Change]:
    """Return the changes of a series of positive values, in its order; none of fewer than FEWEST.

    Noise is what neighbours, singly and as means of blocks, differ by, or what a part of the series
    varies by, whichever is more: runs of one hour or day may be alike, and a mean of them is then
    less certain than as many others would make it.
    """
    series = np.asarray(values, float)
    if len(series) < FEWEST or not (series > 0).all():
        return []
    logs = np.log(series)
    noise = max(_noise(logs), FINEST)
    bounds = sorted(_split(logs, 0, noise, threshold))
    edges = [0, *bounds, len(series)]
    levels = [_median(series[a:b]) for a, b in zip(edges, edges[1:], strict=False)]
    return [Change(at, levels[n], levels[n + 1]) for n, at in enumerate(bounds)]


def _split(logs: Logs, first: int, noise: float, threshold: float) -> list[int]:
    best, inside = 0.0, slice(0)
    for split in range(SIDE, len(logs) - SIDE + 1):
        ends = [(max(0, split - window), min(len(logs), split + window)) for window in WINDOWS]
        for low, high in dict.fromkeys(ends):  # all longer windows are the whole series
            beyond = _beyond(logs[low:split], logs[split:high], noise, threshold)
            if beyond > best:
                best, inside = beyond, slice(low, high)
    if best < BAR:
        return []
    # Where exactly: the parts are then as near as can be to levels of their own.
    near = logs[inside]
    at = min(range(SIDE, len(near) - SIDE + 1), key=lambda n: _off(near[:n]) + _off(near[n:]))
    if _beyond(near[:at], near[at:], noise, threshold) < BAR:
        return []
    at += inside.start
    earlier = _split(logs[:at], first, noise, threshold)
    later = _split(logs[at:], first + at, noise, threshold)
    return [*earlier, first + at, *later]


def _beyond(before: Logs, after: Logs, noise: float, threshold: float) -> float:
    """Standard errors that two parts are apart; 0 where that is less than `threshold`."""
    levels = _median(before), _median(after)
    step = abs(levels[1] - levels[0])
    if step < np.log1p(threshold):
        return 0.0
    varies = max(noise, _robust(before - levels[0]), _robust(after - levels[1]))
    return step / (varies * float(np.sqrt(1 / len(before) + 1 / len(after))))


def _off(level: Logs) -> float:
    return float(np.abs(level - _median(level)).sum())


def _noise(logs: Logs) -> float:
    """Standard deviation of a run, as means of blocks have it: what grows with their length counts.

    Of independent runs the mean of m varies by sqrt(1 / m); of runs that are like the ones before
    them, by more. Differences of neighbouring blocks know it, whatever the kind of memory (an
    estimate of the long-run variance, as from batch means).
    """
    normal = NormalDist().inv_cdf((1 + QUIET) / 2)
    sums = np.concatenate([[0.0], np.cumsum(logs)])
    found = [0.0]
    for block in BLOCKS:
        if len(logs) >= 6 * block:  # or a change is in too many of them
            means = (sums[block:] - sums[:-block]) / block
            differences = np.abs(means[block:] - means[:-block])
            quiet = float(np.quantile(differences, QUIET)) / normal
            found.append(quiet * float(np.sqrt(block / 2)))
    # Few runs have not shown yet how much they can differ.
    return max(found) * (1 + 3 * FEWEST / len(logs))


def _robust(values: Logs) -> float:
    """Standard deviation of normal values around zero, from the median of their sizes."""
    return 1.4826 * _median(np.abs(values))


def _median(values: Logs) -> float:
    """Return what np.median does, which takes several times as long for so few values."""
    ranked, middle = np.sort(values), len(values) // 2
    return float(ranked[middle] if len(values) % 2 else (ranked[middle - 1] + ranked[middle]) / 2)
