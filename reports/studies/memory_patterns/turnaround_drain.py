"""Model "drain" of turnaround_fit: reads pay for what was written before them.

    penalty = N c r^p min(w, D)^(1 - p)        r = R / N, w = W / N

L2 keeps what was written last, D bytes at most, and writes it back while the reads that follow
evict it. So a turn costs more the more reads follow it; and runs of writes below D cost
c R^p W^(1 - p), a price by the byte, however often they alternate. An empirical law: p is fitted.
The parameters are found by the damped Gauss-Newton method of Levenberg and Marquardt, for all rows
of weights at once, from the best point of a grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEPS = 60
EXPONENTS = np.linspace(0.0, 1.0, 11)
SIZES = 24
DAMPING = 1e-3


@dataclass(frozen=True)
class Drain:
    """The cases of a fit in the terms of the model; see Mixes of turnaround_solve.

    Attributes:
        both: (cases, 2) bytes read and written.
        switches: (cases,) N.
        read_run, write_run: (cases,) logarithms of r and w; 0 without a switch.
        seconds: (cases,) measured times.
    """

    both: Floats
    switches: Floats
    read_run: Floats
    write_run: Floats
    seconds: Floats


@dataclass(frozen=True)
class Parameters:
    """One row per fit: `rates` (fits, 2) s per byte, `cost` c, `exponent` p, `log_batch` ln D."""

    rates: Floats
    cost: Floats
    exponent: Floats
    log_batch: Floats


def penalty(drain: Drain, found: Parameters) -> Floats:
    """Return the seconds that each fit adds to each case, (fits, cases)."""
    return np.asarray(found.cost[:, None] * _shape(drain, found.exponent, found.log_batch))


def predict(drain: Drain, found: Parameters) -> Floats:
    """Return the seconds that each fit predicts for each case, (fits, cases)."""
    return np.asarray(found.rates @ drain.both.T + penalty(drain, found))


def _shape(drain: Drain, exponent: Floats, batch: Floats) -> Floats:
    p = exponent[:, None]
    drained = np.minimum(drain.write_run, batch[:, None])
    return np.asarray(drain.switches * np.exp(p * drain.read_run + (1 - p) * drained))


def jacobian(drain: Drain, found: Parameters) -> Floats:
    """Return derivatives of the predictions (fits, cases, 5) by the order of `Parameters`."""
    shape = _shape(drain, found.exponent, found.log_batch)
    p, batch = found.exponent[:, None], found.log_batch[:, None]
    cost = found.cost[:, None]
    drained = np.minimum(drain.write_run, batch)
    beyond = drain.write_run > batch
    fits = len(found.cost)
    by_rate = np.broadcast_to(drain.both, (fits, *drain.both.shape))
    by_penalty = np.stack(
        [shape, cost * shape * (drain.read_run - drained), cost * shape * (1 - p) * beyond], axis=2
    )
    return np.concatenate([by_rate, by_penalty], axis=2)


def loss(drain: Drain, found: Parameters, weights: Floats) -> Floats:
    """Return the weighted sums of squared residuals, (fits,)."""
    return np.asarray((weights * (drain.seconds - predict(drain, found)) ** 2).sum(axis=1))


def _start(drain: Drain, weights: Floats) -> tuple[Floats, float, float]:
    """Return (rates and cost), exponent and log of D that are best on a grid, for one weighting."""
    runs = drain.write_run[drain.switches > 0]
    best, found = np.inf, (np.zeros(3), 0.5, float(runs.mean()))
    root = np.sqrt(weights)
    for exponent in EXPONENTS:
        for batch in np.linspace(runs.min(), runs.max(), SIZES):
            shape = _shape(drain, np.array([exponent]), np.array([batch]))[0]
            design = np.column_stack([drain.both, shape])
            scale = np.abs(design).max(axis=0)
            scale[scale == 0] = 1.0
            scaled = design / scale * root[:, None]
            beta = np.linalg.lstsq(scaled, drain.seconds * root, rcond=None)[0]
            error = float(((drain.seconds * root - scaled @ beta) ** 2).sum())
            if error < best:
                best, found = error, (beta / scale, float(exponent), float(batch))
    return found


def _stepped(drain: Drain, found: Parameters, step: Floats) -> Parameters:
    runs = drain.write_run[drain.switches > 0]
    return Parameters(
        found.rates + step[:, :2],
        found.cost + step[:, 2],
        np.clip(found.exponent + step[:, 3], 0.0, 1.0),
        np.clip(found.log_batch + step[:, 4], runs.min(), runs.max()),
    )


def _chosen(take: NDArray[np.bool_], new: Parameters, old: Parameters) -> Parameters:
    return Parameters(
        np.where(take[:, None], new.rates, old.rates),
        np.where(take, new.cost, old.cost),
        np.where(take, new.exponent, old.exponent),
        np.where(take, new.log_batch, old.log_batch),
    )


def solve_drain(drain: Drain, weights: Floats) -> tuple[Parameters, Floats]:
    """Fit once for each row of `weights` (fits, cases); return parameters and losses."""
    linear, exponent, batch = _start(drain, weights.mean(axis=0))
    fits = len(weights)
    found = Parameters(
        np.tile(linear[:2], (fits, 1)),
        np.full(fits, linear[2]),
        np.full(fits, exponent),
        np.full(fits, batch),
    )
    current = loss(drain, found, weights)
    damping = np.full(fits, DAMPING)
    for _ in range(STEPS):
        slopes = jacobian(drain, found)
        scale = np.abs(slopes).max(axis=1)
        scale[scale == 0] = 1.0
        scaled = slopes / scale[:, None, :]
        normal = np.einsum("fni,fn,fnj->fij", scaled, weights, scaled)
        residuals = drain.seconds - predict(drain, found)
        right = np.einsum("fni,fn,fn->fi", scaled, weights, residuals)
        diagonal = np.einsum("fii->fi", normal).copy()
        # Where a case weighs nothing, a parameter may have no slope; it then stays where it is.
        diagonal += 1e-12 * diagonal.max(axis=1, keepdims=True)
        damped = normal + (damping[:, None] * diagonal)[:, :, None] * np.eye(5)
        step = np.linalg.solve(damped, right[:, :, None])[:, :, 0] / scale
        tried = _stepped(drain, found, step)
        reached = loss(drain, tried, weights)
        better = reached < current
        found = _chosen(better, tried, found)
        settled = np.abs(current - reached) <= 1e-10 * current
        current = np.where(better, reached, current)
        damping = np.clip(np.where(better, damping / 5, damping * 4), 1e-9, 1e9)
        if settled.all():
            break
    return found, current
