"""Least squares behind turnaround_fit: many weighted fits of one model at a time.

"batched", t = ... + M / max(run, batch) t_turnaround, bends where `batch` passes the run length of
a case, and is linear in between: cases with runs up to there pay c M with c = t_turnaround / batch,
the others N t_turnaround. So each stretch between two run lengths is solved as a linear model with
both prices, taken where their ratio falls into the stretch, and else at the stretch's ends.

"drain", penalty = N c r^p min(w, D)^(1 - p) with r = R / N, w = W / N: L2 keeps what was written
last, D bytes at most, and writes it back while the reads that follow evict it. So a turn costs the
more the more reads follow it; and runs of writes below D cost c R^p W^(1 - p), a price by the byte,
however often they alternate. An empirical law: p is fitted. The parameters are found by the damped
Gauss-Newton method of Levenberg and Marquardt, for all rows of weights at once, from the best point
of a grid.
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
    """The cases of a fit in the terms of the model "drain"; see Mixes.

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


def drain_penalty(drain: Drain, beta: Floats) -> Floats:
    """Return the seconds that each fit adds to each case, (fits, cases).

    A row of `beta` (fits, 5) is one fit: s per byte read and written, c, p, and ln D.
    """
    return np.asarray(beta[:, 2, None] * _shape(drain, beta))


def _drained(drain: Drain, beta: Floats) -> Floats:
    """Return the seconds that each fit predicts for each case, (fits, cases)."""
    return np.asarray(beta[:, :2] @ drain.both.T + drain_penalty(drain, beta))


def _shape(drain: Drain, beta: Floats) -> Floats:
    p, drained = beta[:, 3, None], np.minimum(drain.write_run, beta[:, 4, None])
    return np.asarray(drain.switches * np.exp(p * drain.read_run + (1 - p) * drained))


def jacobian(drain: Drain, beta: Floats) -> Floats:
    """Return derivatives of the predictions (fits, cases, 5) by the columns of `beta`."""
    shape = _shape(drain, beta)
    cost, p, batch = (beta[:, n, None] for n in (2, 3, 4))
    drained, beyond = np.minimum(drain.write_run, batch), drain.write_run > batch
    by_rate = np.broadcast_to(drain.both, (len(beta), *drain.both.shape))
    by_penalty = np.stack(
        [shape, cost * shape * (drain.read_run - drained), cost * shape * (1 - p) * beyond], axis=2
    )
    return np.concatenate([by_rate, by_penalty], axis=2)


def loss(drain: Drain, beta: Floats, weights: Floats) -> Floats:
    """Return the weighted sums of squared residuals, (fits,)."""
    return np.asarray((weights * (drain.seconds - _drained(drain, beta)) ** 2).sum(axis=1))


def _start(drain: Drain, weights: Floats) -> Floats:
    """Return the parameters that are best on a grid of p and ln D, for one weighting."""
    runs = drain.write_run[drain.switches > 0]
    sizes = np.linspace(runs.min(), runs.max(), SIZES)
    grid = np.array([[0.0, 0.0, 0.0, p, size] for p in EXPONENTS for size in sizes])
    both = np.broadcast_to(drain.both, (len(grid), *drain.both.shape))
    designs = np.concatenate([both, _shape(drain, grid)[:, :, None]], axis=2)
    scale = np.abs(designs).max(axis=1)
    scale[scale == 0] = 1.0
    root = np.sqrt(weights)
    scaled = designs / scale[:, None, :] * root[:, None]
    linear = np.linalg.pinv(scaled) @ (drain.seconds * root)
    errors = drain.seconds * root - np.einsum("gnj,gj->gn", scaled, linear)
    best = int(np.argmin((errors**2).sum(axis=1)))
    return np.array([*(linear[best] / scale[best]), *grid[best, 3:]])


def solve_drain(drain: Drain, weights: Floats) -> tuple[Floats, Floats]:
    """Fit once for each row of `weights` (fits, cases); return parameters and losses."""
    fits = len(weights)
    beta = np.tile(_start(drain, weights.mean(axis=0)), (fits, 1))
    runs = drain.write_run[drain.switches > 0]
    lowest = (-np.inf, -np.inf, -np.inf, 0.0, runs.min())
    highest = (np.inf, np.inf, np.inf, 1.0, runs.max())
    current = loss(drain, beta, weights)
    damping = np.full(fits, DAMPING)
    for _ in range(STEPS):
        slopes = jacobian(drain, beta)
        scale = np.abs(slopes).max(axis=1)
        scale[scale == 0] = 1.0
        scaled = slopes / scale[:, None, :]
        weighted = (scaled * weights[:, :, None]).swapaxes(1, 2)
        normal = weighted @ scaled
        right = (weighted @ (drain.seconds - _drained(drain, beta))[:, :, None])[:, :, 0]
        diagonal = np.einsum("fii->fi", normal).copy()
        # Where a case weighs nothing, a parameter may have no slope; it then stays where it is.
        diagonal += 1e-12 * diagonal.max(axis=1, keepdims=True)
        damped = normal + (damping[:, None] * diagonal)[:, :, None] * np.eye(5)
        step = np.linalg.solve(damped, right[:, :, None])[:, :, 0] / scale
        tried = np.clip(beta + step, lowest, highest)
        reached = loss(drain, tried, weights)
        better = reached < current
        beta = np.where(better[:, None], tried, beta)
        settled = np.abs(current - reached) <= 1e-10 * current
        current = np.where(better, reached, current)
        damping = np.clip(np.where(better, damping / 5, damping * 4), 1e-9, 1e9)
        if settled.all():
            break
    return beta, current


@dataclass(frozen=True)
class Mixes:
    """The cases of a fit: arrays of one length, in bytes and seconds.

    Attributes:
        reads, writes: bytes of one call.
        switches: changes from writing to reading in one call.
        seconds: measured time of one call.
        sigma: its standard error in seconds.
    """

    reads: Floats
    writes: Floats
    switches: Floats
    seconds: Floats
    sigma: Floats

    @property
    def rarer(self) -> Floats:
        """M: bytes of the direction that has fewer."""
        return np.minimum(self.reads, self.writes)

    @property
    def run(self) -> Floats:
        """Bytes of the rarer direction between two switches; infinite without a switch."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.switches > 0, self.rarer / self.switches, np.inf)

    def __len__(self) -> int:
        return len(self.seconds)


@dataclass(frozen=True)
class Solved:
    """Many fits: a row of each array is one of them.

    Attributes:
        rates: (fits, 2) seconds a byte read and written.
        turnaround: (fits,) seconds a switch; NaN where the model has none.
        mix_cost: (fits,) seconds a byte of the rarer direction; NaN where the model has none.
        batch: (fits,) bytes; NaN where the model has none.
        exponent: (fits,) p of "drain"; NaN for the others.
        loss: (fits,) weighted sum of squared residuals.
    """

    rates: Floats
    turnaround: Floats
    mix_cost: Floats
    batch: Floats
    exponent: Floats
    loss: Floats


REFERENCE = float(64 << 20)
"""Bytes of reads after a switch for which "drain" gives its cost."""


def penalty(model: str, mixes: Mixes, solved: Solved, row: int = 0) -> Floats:
    """Return the seconds that one fit adds to each case for its mix."""
    if model == "none":
        return np.zeros(len(mixes))
    if model == "switches":
        return np.asarray(mixes.switches * solved.turnaround[row])
    if model == "mix":
        return np.asarray(mixes.rarer * solved.mix_cost[row])
    if model == "drain":
        return np.asarray(drain_penalty(drain_of(mixes), _drain_row(solved, row))[0])
    run = np.maximum(mixes.run, solved.batch[row])
    return np.asarray(mixes.rarer / run * solved.turnaround[row], dtype=np.float64)


def predict(model: str, mixes: Mixes, solved: Solved, row: int = 0) -> Floats:
    """Return the seconds that one fit predicts for each case."""
    both = np.stack([mixes.reads, mixes.writes], axis=1)
    return np.asarray(both @ solved.rates[row] + penalty(model, mixes, solved, row))


def columns(model: str, mixes: Mixes, batch: float) -> Floats:
    """Return the design matrix (cases, parameters), for "batched" near `batch`: with both prices.

    Args:
        model: none, switches, mix or batched.
        mixes: the cases.
        batch: up to which run length a case pays by the byte; for "batched" alone.
    """
    both = [mixes.reads, mixes.writes]
    if model == "switches":
        both.append(mixes.switches)
    elif model == "mix":
        both.append(mixes.rarer)
    elif model == "batched":
        short = mixes.run <= batch
        both += [np.where(short, 0.0, mixes.switches), np.where(short, mixes.rarer, 0.0)]
    return np.stack(both, axis=1)


def _linear(design: Floats, seconds: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return parameters (fits, parameters) and losses (fits,) of a linear model."""
    scale = np.abs(design).max(axis=0)
    scale[scale == 0] = 1.0
    scaled = design / scale
    products = scaled[:, :, None] * scaled[:, None, :]
    normal = (weights @ products.reshape(len(scaled), -1)).reshape(-1, *products.shape[1:])
    right = weights @ (scaled * seconds[:, None])
    found = np.einsum("fij,fj->fi", np.linalg.pinv(normal, hermitian=True), right)
    residuals = seconds - found @ scaled.T
    return found / scale, np.einsum("fn,fn->f", weights, residuals**2)


def solve(model: str, mixes: Mixes, weights: Floats) -> Solved:
    """Fit `model` once for each row of `weights` (fits, cases)."""
    if model == "batched":
        return _solve_batched(mixes, weights)
    if model == "drain":
        return _solve_drain(mixes, weights)
    beta, loss = _linear(columns(model, mixes, 0.0), mixes.seconds, weights)
    nothing = _nothing(weights)
    turnaround = beta[:, 2] if model == "switches" else nothing
    mix_cost = beta[:, 2] if model == "mix" else nothing
    return Solved(beta[:, :2], turnaround, mix_cost, nothing, nothing, loss)


def _nothing(weights: Floats) -> Floats:
    return np.full(len(weights), np.nan)


def drain_of(mixes: Mixes) -> Drain:
    """Return the cases in the terms of the model "drain"."""
    switched = mixes.switches > 0
    count = np.where(switched, mixes.switches, 1.0)
    return Drain(
        np.stack([mixes.reads, mixes.writes], axis=1),
        mixes.switches,
        np.log(np.where(switched, mixes.reads, 1.0) / count),
        np.log(np.where(switched, mixes.writes, 1.0) / count),
        mixes.seconds,
    )


def _drain_row(solved: Solved, row: int = 0) -> Floats:
    """Return one fit of "drain" as its own parameters, (1, 5)."""
    others = (solved.mix_cost[row], solved.exponent[row], np.log(solved.batch[row]))
    return np.array([[*solved.rates[row], *others]])


def _solve_drain(mixes: Mixes, weights: Floats) -> Solved:
    beta, loss = solve_drain(drain_of(mixes), weights)
    cost, p, log_batch = beta[:, 2:].T
    turnaround = cost * np.exp(p * np.log(REFERENCE) + (1 - p) * log_batch)
    return Solved(beta[:, :2], turnaround, cost, np.exp(log_batch), p, loss)


def slopes(model: str, mixes: Mixes, solved: Solved) -> Floats:
    """Return derivatives of the predictions by the parameters, near the first fit."""
    if model == "drain":
        return np.asarray(jacobian(drain_of(mixes), _drain_row(solved))[0])
    return columns(model, mixes, float(solved.batch[0]))


def gradients(model: str, solved: Solved) -> dict[str, tuple[float, Floats]]:
    """Return each quantity of the first fit, and its derivatives by the parameters of `slopes`."""
    count = {"none": 2, "switches": 3, "mix": 3, "batched": 4, "drain": 5}[model]
    unit = np.eye(count)
    read, write = (float(rate) for rate in solved.rates[0])
    turnaround, cost = float(solved.turnaround[0]), float(solved.mix_cost[0])
    batch, p = float(solved.batch[0]), float(solved.exponent[0])
    by_parameter = {
        "read_rate": (1 / read, -unit[0] / read**2),
        "write_rate": (1 / write, -unit[1] / write**2),
    }
    if model in ("switches", "batched"):
        by_parameter["turnaround"] = (turnaround, unit[2])
    if model in ("mix", "drain"):
        by_parameter["mix_cost"] = (cost, unit[2])
    if model == "batched":
        by_parameter["mix_cost"] = (cost, unit[3])
        by_parameter["batch"] = (batch, (unit[2] - batch * unit[3]) / (cost or np.nan))
    if model == "drain":
        by_p = np.log(REFERENCE) - np.log(batch)
        by_all = unit[2] / (cost or np.nan) + by_p * unit[3] + (1 - p) * unit[4]
        by_parameter["turnaround"] = (turnaround, turnaround * by_all)
        by_parameter["batch"] = (batch, batch * unit[4])
        by_parameter["exponent"] = (p, unit[3])
    return by_parameter


def _solve_batched(mixes: Mixes, weights: Floats) -> Solved:
    edges = np.unique(mixes.run[np.isfinite(mixes.run)])
    best = _at(mixes, weights, float(edges[0]))
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        best = _better(best, _between(mixes, weights, float(low), float(high)))
        best = _better(best, _at(mixes, weights, float(high)))
    return best


def _at(mixes: Mixes, weights: Floats, batch: float) -> Solved:
    """Solve with a given batch."""
    design = np.stack(
        [mixes.reads, mixes.writes, mixes.rarer / np.maximum(mixes.run, batch)], axis=1
    )
    beta, loss = _linear(design, mixes.seconds, weights)
    batches = np.full(len(weights), batch)
    return Solved(beta[:, :2], beta[:, 2], beta[:, 2] / batch, batches, _nothing(weights), loss)


def _between(mixes: Mixes, weights: Floats, low: float, high: float) -> Solved:
    """Solve with a batch between two neighbouring run lengths; where none is, the loss is inf."""
    beta, loss = _linear(columns("batched", mixes, low), mixes.seconds, weights)
    turnaround, mix_cost = beta[:, 2], beta[:, 3]
    with np.errstate(divide="ignore", invalid="ignore"):
        batch = np.where(mix_cost != 0, turnaround / mix_cost, np.nan)
    inside = (batch > low) & (batch < high)
    losses = np.where(inside, loss, np.inf)
    return Solved(beta[:, :2], turnaround, mix_cost, batch, _nothing(weights), losses)


def _better(a: Solved, b: Solved) -> Solved:
    take = b.loss < a.loss
    return Solved(
        np.where(take[:, None], b.rates, a.rates),
        *(
            np.where(take, getattr(b, name), getattr(a, name))
            for name in ("turnaround", "mix_cost", "batch", "exponent", "loss")
        ),
    )


def covariance(design: Floats, weights: Floats, loss: float) -> Floats:
    """Return the covariance of the parameters of a linear model from its residuals."""
    scale = np.abs(design).max(axis=0)
    scale[scale == 0] = 1.0
    scaled = design / scale
    normal = (scaled * weights[:, None]).T @ scaled
    freedom = len(weights) - design.shape[1]
    inverse = np.linalg.pinv(normal, hermitian=True)
    return np.asarray(inverse * (loss / freedom) / np.outer(scale, scale))
