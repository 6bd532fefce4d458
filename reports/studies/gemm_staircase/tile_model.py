"""Fits the tile model of a matrix product: t = t0 + waves x t_wave, not below bytes / B.

    tiles = ceil(M / Tm) ceil(N / Tn), waves = ceil(tiles / slots), slots = SMs x CTAs per SM

t_wave is the time of one tile on an SM with its fixed part: K is the same in a sweep, which cannot
separate the two. Two controls have as many parameters and one ceil less each: time by tiles (no
waves) and time by M x N (no tiles either). Where the staircase is real, the first model beats
both. Formulae: NVIDIA, Matrix Multiplication Background User's Guide
(tile and wave quantization), and NeuSight (ASPLOS 2025). Pure numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Model = Literal["waves", "tiles", "continuous"]

MODELS: tuple[Model, ...] = ("waves", "tiles", "continuous")
MAX_CTAS = 4
"""CTAs per SM that are tried: with more, a tile would be too small for a matrix product."""
MIN_POINTS = 6
RESAMPLES = 2000


@dataclass(frozen=True)
class Tiling:
    """Tile (rows, columns) of a product of `n` columns, in clusters of CTAs.

    The grid is made of whole clusters, so that the tiles along a side are a multiple of it; the
    tiles outside the product are computed (counted FLOPs of cuBLAS' nvjet kernels on an H200).
    """

    n: int
    tile_m: int
    tile_n: int
    cluster_m: int = 1
    cluster_n: int = 1

    @property
    def name(self) -> str:
        """Rows x columns: "128x128"."""
        return f"{self.tile_m}x{self.tile_n}"

    def tiles(self, m: int) -> int:
        """Return ceil(m / tile_m) x ceil(n / tile_n), each rounded up to whole clusters."""
        down = _round_up(math.ceil(m / self.tile_m), self.cluster_m)
        return down * _round_up(math.ceil(self.n / self.tile_n), self.cluster_n)

    def waves(self, m: int, slots: int) -> int:
        """Return ceil(tiles / slots): how often all slots are filled, the last time in part."""
        return math.ceil(self.tiles(m) / slots)

    def tail_efficiency(self, m: int, slots: int) -> float:
        """Return tiles / (waves x slots): the part of all slots that has a tile to compute."""
        return self.tiles(m) / (self.waves(m, slots) * slots)

    def tile_efficiency(self, m: int) -> float:
        """Return m n over the elements that the tiles cover: 1 without padding."""
        return m * self.n / (self.tiles(m) * self.tile_m * self.tile_n)

    def edges(self, low: int, high: int, slots: int) -> list[int]:
        """Return the m in [low, high) at which one row more begins another wave."""
        first = max(low, 1)
        rows = range(math.ceil(first / self.tile_m) * self.tile_m, high, self.tile_m)
        return [m for m in rows if self.waves(m + 1, slots) > self.waves(m, slots)]


def _round_up(value: int, unit: int) -> int:
    return math.ceil(value / unit) * unit


@dataclass(frozen=True)
class Quality:
    """How well a model predicts the points that it was fitted to.

    `median_error`, `p90_error` and `worst_error` are |predicted / measured - 1|; `r_squared` is of
    the times.
    """

    median_error: float
    p90_error: float
    worst_error: float
    r_squared: float


@dataclass(frozen=True)
class Fit:
    """A fitted model; times in seconds, intervals of 95 %.

    `t_unit_s` is the time of a wave for "waves", and the time per `slots` tiles' worth of work for
    the controls, so that the three compare. `floored` counts the points whose prediction is
    bytes / `bandwidth`.
    """

    model: Model
    slots: int
    t0_s: float
    t0_interval_s: tuple[float, float]
    t_unit_s: float
    t_unit_interval_s: tuple[float, float]
    bandwidth: float | None
    floored: int
    points: int
    quality: Quality
    predicted_s: tuple[float, ...]


@dataclass(frozen=True)
class Data:
    """Points of one sweep: sizes, seconds, and bytes that each must move (for the floor)."""

    m: Sequence[int]
    seconds: Sequence[float]
    moved: Sequence[float]


def fit(
    data: Data,
    tiling: Tiling,
    slots: int,
    bandwidth: float | None = None,
    model: Model = "waves",
    *,
    seed: int = 0,
) -> Fit | None:
    """Fit t0 and t_unit by least squares of the relative error.

    Args:
        data: the sweep.
        tiling: the tile of its kernel.
        slots: CTAs that run at a time on the whole GPU.
        bandwidth: B of the floor in bytes per second; None leaves the floor out.
        model: the model or one of its controls.
        seed: of the bootstrap, which resamples whole rows of tiles: points of one row of tiles
            err alike, and are one observation rather than many.

    Returns:
        The fit; None where fewer than six points or two different amounts of work are left.
    """
    seconds = np.asarray(data.seconds, float)
    area = tiling.tile_m * tiling.tile_n * slots
    amount: dict[Model, Callable[[int], float]] = {
        "waves": lambda m: tiling.waves(m, slots),
        "tiles": lambda m: tiling.tiles(m) / slots,
        "continuous": lambda m: m * tiling.n / area,
    }
    work = np.array([float(amount[model](m)) for m in data.m])  # in units of `slots` tiles
    floor = np.asarray(data.moved, float) / bandwidth if bandwidth else np.zeros_like(seconds)
    free = np.ones(len(seconds), bool)
    for _ in range(10):
        if free.sum() < MIN_POINTS or len(np.unique(work[free])) < 2:
            return None
        solved = _solve(work[None, free], seconds[None, free], np.ones((1, free.sum())))
        t0, unit = (float(values[0]) for values in solved)
        now = t0 + unit * work >= floor
        if (now == free).all():
            break
        free = now
    predicted = np.maximum(t0 + unit * work, floor)
    groups = np.array([math.ceil(m / tiling.tile_m) for m in data.m])
    t0_interval, unit_interval = _intervals(work[free], seconds[free], groups[free], seed)
    return Fit(
        model=model,
        slots=slots,
        t0_s=t0,
        t0_interval_s=t0_interval,
        t_unit_s=unit,
        t_unit_interval_s=unit_interval,
        bandwidth=bandwidth,
        floored=int((~free).sum()),
        points=len(seconds),
        quality=quality(seconds, predicted),
        predicted_s=tuple(predicted.tolist()),
    )


def best_slots(
    data: Data, tiling: Tiling, sm_count: int, bandwidth: float | None = None
) -> tuple[Fit, dict[int, float]] | None:
    """Return the fit with the number of CTAs per SM that predicts best, and the error of each.

    Returns:
        The fit and the root mean square relative error by CTAs per SM, or None where none fits.
    """
    found: dict[int, tuple[float, Fit]] = {}
    for ctas in range(1, MAX_CTAS + 1):
        fitted = fit(data, tiling, ctas * sm_count, bandwidth)
        if fitted is not None:
            relative = np.asarray(fitted.predicted_s) / np.asarray(data.seconds) - 1
            found[ctas] = (float(np.sqrt(np.mean(relative**2))), fitted)
    if not found:
        return None
    best = min(found, key=lambda ctas: found[ctas][0])
    return found[best][1], {ctas: error for ctas, (error, _) in found.items()}


def quality(measured: Array, predicted: Array) -> Quality:
    """Return how far `predicted` is from `measured`, both (points,) in seconds."""
    relative = np.abs(predicted / measured - 1)
    total = float(((measured - measured.mean()) ** 2).sum())
    residual = float(((measured - predicted) ** 2).sum())
    return Quality(
        median_error=float(np.median(relative)),
        p90_error=float(np.quantile(relative, 0.9)),
        worst_error=float(relative.max()),
        r_squared=1 - residual / total if total else math.nan,
    )


def _solve(work: Array, seconds: Array, times: Array) -> tuple[Array, Array]:
    """Return t0 and t_unit of many samples (samples, points), of which each takes a point `times`.

    Least squares of t0 + unit x work, each point weighted by 1 / t^2.
    """
    weight = times / seconds**2
    w, x, y = weight.sum(1), (weight * work).sum(1), (weight * seconds).sum(1)
    xx, xy = (weight * work**2).sum(1), (weight * work * seconds).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = (w * xy - x * y) / (w * xx - x**2)
        return (y - unit * x) / w, unit


def _intervals(
    work: Array, seconds: Array, groups: Array, seed: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return 95 % percentile intervals of t0 and t_unit from resampled groups of points."""

    def interval(values: Array) -> tuple[float, float]:
        finite = values[np.isfinite(values)]
        low, high = np.quantile(finite, (0.025, 0.975)) if len(finite) else (math.nan, math.nan)
        return float(low), float(high)

    names, index = np.unique(groups, return_inverse=True)
    random = np.random.default_rng(seed)
    drawn = random.integers(0, len(names), (RESAMPLES, len(names)))
    taken = np.stack([np.bincount(draw, minlength=len(names)) for draw in drawn]).astype(float)
    t0, unit = _solve(work[None], seconds[None], taken[:, index])
    return interval(t0), interval(unit)
