"""Aligns the clocks of ranks by collectives, which end at about the same time on all of them.

Each kind of collective counts by how narrowly its ends differ: one that passes a few bytes through
flags ends within 0.3 us on two GPUs of a host, one of many megabytes within 20 us.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FEWEST = 8
"""Pairs of ends from which on an offset is stated."""
FEW = 32
"""Pairs of a kind from which on its spread is that of itself alone: a line through fewer may pass
through half of them by chance."""
SHORTEST_NS = 20e6
"""Time between the first and the last pair from which on a drift is fitted, too."""
NARROWEST_NS = 20.0
"""Least spread of a kind of collective: CUPTI's times have steps of 32 ns."""
ROUNDS = 8


@dataclass(frozen=True)
class Clock:
    """A clock against that of another rank: `time = reference + offset + drift x (reference - at)`.

    `offset_ns` at the time `at_ns` of the reference; `residual_p95_ns` is what 95 % of the ends of
    collectives differ by at most once aligned, those of narrow kinds counting most: the
    uncertainty. `pairs` is how many ends were compared.
    """

    offset_ns: float = 0.0
    drift_ppm: float = 0.0
    residual_p95_ns: float = 0.0
    pairs: int = 0
    at_ns: float = 0.0

    def on_reference(self, times: Array) -> Array:
        """Return times of this clock as times of the reference (ns)."""
        drift = self.drift_ppm * 1e-6
        reference: Array = (times - self.at_ns - self.offset_ns) / (1 + drift) + self.at_ns
        return reference

    def from_reference(self, times: Array) -> Array:
        """Return times of the reference as times of this clock (ns)."""
        found: Array = times + self.offset_ns + self.drift_ppm * 1e-6 * (times - self.at_ns)
        return found

    def through(self, clock: Clock) -> Clock:
        """Return this clock, which was fitted on a reference that `clock` made of another one."""
        return replace(self, residual_p95_ns=self.residual_p95_ns + clock.residual_p95_ns)


def fit_clock(kinds: Sequence[tuple[Array, Array]]) -> Clock | None:
    """Fit the clock of a rank; `kinds` are ends on the reference and on the rank, by collective.

    Returns None where there are too few. Weighted least squares with Huber's weights; the weight of
    a kind is that of the spread of its residuals, found in rounds. Kinds of too few pairs to have a
    spread count as one with those that follow: `kinds` are ordered by how narrow they may be.
    """
    used = _pooled(kinds)
    if sum(len(a) for a, _ in used) < FEWEST:
        return None
    reference = np.concatenate([a for a, _ in used]).astype(np.int64)
    ends = np.concatenate([b for _, b in used]).astype(np.int64)
    kind = np.repeat(np.arange(len(used)), [len(a) for a, _ in used])
    at = int(np.median(reference))
    difference = ends - reference
    middle = int(np.median(difference))
    time, value = (reference - at).astype(float), (difference - middle).astype(float)
    drifts = float(np.ptp(time)) >= SHORTEST_NS
    columns = np.stack([np.ones_like(time), time if drifts else np.zeros_like(time)], axis=1)
    # The first round goes by how each kind varies in itself: one of many pairs whose ends are apart
    # by a constant would draw the line to it, and the narrow ones would look as wide.
    medians = np.array([np.median(value[kind == k]) for k in range(len(used))])
    residual, fitted, weight = value - medians[kind], np.zeros(2), np.ones_like(time)
    for _ in range(ROUNDS):
        weight = _weights(residual, kind, len(used))
        root = np.sqrt(weight)
        fitted = np.linalg.lstsq(columns * root[:, None], value * root, rcond=None)[0]
        residual = value - columns @ fitted
    residual = np.abs(value - columns @ fitted)
    return Clock(
        offset_ns=middle + float(fitted[0]),
        drift_ppm=float(fitted[1]) * 1e6,
        residual_p95_ns=_quantile(residual, weight, 0.95),
        pairs=len(value),
        at_ns=float(at),
    )


def _pooled(kinds: Sequence[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
    """Join kinds of fewer than FEW pairs with the next such ones, until there are enough.

    Fewer than FEWEST in all have no spread, and would draw the line through themselves: left out.
    """
    found = [kind for kind in kinds if len(kind[0]) >= FEW]
    pool: list[tuple[Array, Array]] = []
    rare = [kind for kind in kinds if 0 < len(kind[0]) < FEW]
    for number, kind in enumerate(rare, 1):
        pool.append(kind)
        pairs = sum(len(a) for a, _ in pool)
        if (number == len(rare) and (pairs >= FEWEST or not found)) or pairs >= FEW:
            found.append(
                (np.concatenate([a for a, _ in pool]), np.concatenate([b for _, b in pool]))
            )
            pool = []
    return found


def _weights(residual: Array, kind: Array, kinds: int) -> Array:
    size = np.abs(residual)
    spread = np.array([1.4826 * np.median(size[kind == k]) for k in range(kinds)])
    spread = np.maximum(spread, NARROWEST_NS)[kind]
    weights: Array = np.minimum(1.0, 2.0 * spread / np.maximum(size, 1e-9)) / spread**2
    return weights


def _quantile(values: Array, weight: Array, share: float) -> float:
    order = np.argsort(values)
    summed = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(summed, share * summed[-1])])
