"""Least squares behind turnaround_fit: many weighted fits of one model at a time.

"batched", t = ... + M / max(run, batch) t_turnaround, bends where `batch` passes the run length of
a case, and is linear in between: cases with runs up to there pay c M with c = t_turnaround / batch,
the others N t_turnaround. So each stretch between two run lengths is solved as a linear model with
both prices, taken where their ratio falls into the stretch, and else at the stretch's ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nsight_prof.reports.studies.memory_patterns.turnaround_drain import (
    Drain,
    Parameters,
    jacobian,
    solve_drain,
)
from nsight_prof.reports.studies.memory_patterns.turnaround_drain import penalty as drain_penalty

Floats = NDArray[np.float64]


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
        return np.asarray(drain_penalty(drain_of(mixes), parameters_of(solved, row))[0])
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
    normal = np.einsum("fn,ni,nj->fij", weights, scaled, scaled)
    right = np.einsum("fn,ni,n->fi", weights, scaled, seconds)
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


def parameters_of(solved: Solved, row: int = 0) -> Parameters:
    """Return one fit of "drain" as its own parameters."""
    selected = slice(row, row + 1)
    return Parameters(
        solved.rates[selected],
        solved.mix_cost[selected],
        solved.exponent[selected],
        np.log(solved.batch[selected]),
    )


def _solve_drain(mixes: Mixes, weights: Floats) -> Solved:
    found, loss = solve_drain(drain_of(mixes), weights)
    p = found.exponent
    turnaround = found.cost * np.exp(p * np.log(REFERENCE) + (1 - p) * found.log_batch)
    return Solved(found.rates, turnaround, found.cost, np.exp(found.log_batch), p, loss)


def slopes(model: str, mixes: Mixes, solved: Solved) -> Floats:
    """Return derivatives of the predictions by the parameters, near the first fit."""
    if model == "drain":
        return np.asarray(jacobian(drain_of(mixes), parameters_of(solved))[0])
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
