"""What it costs DRAM to turn from writing to reading: a weighted fit of the times of mixes.

    t = R / B_read + W / B_write + penalty

R and W are bytes read and written, B_read and B_write the bandwidths of one direction alone. The
penalty is one of (M = min(R, W), N switches from writing to reading, run = M / N):

    none        0
    switches    N t_turnaround                      every switch of the program costs the same
    mix         M c                                 a price for each byte of the rarer direction,
                                                    however finely it alternates
    batched     M / max(run, batch) t_turnaround    switches cost until runs are shorter than a
                                                    batch; below, caches and controllers gather
                                                    `batch` bytes before they turn
    drain       N c r^p min(w, D)^(1 - p)           r = R / N bytes of reads pay for the last D
                                                    bytes written before them, which L2 still has

"batched" is "switches" for long runs and "mix" with c = t_turnaround / batch for short ones. It
bends where `batch` passes the run length of a case, and is linear in between: each stretch between
two run lengths is solved as a linear model with both prices, taken where their ratio falls into the
stretch, and else at the stretch's ends.

"drain" is an empirical law: L2 keeps what was written last, D bytes at most, and writes it back
while the reads that follow evict it; runs of writes below D cost c R^p W^(1 - p), a price by the
byte. It is fitted by the damped Gauss-Newton method of Levenberg and Marquardt, for all rows of
weights at once, from the best point of a grid.

Models are compared by AICc (Hurvich and Tsai 1989) and by the error of predicting each mix from all
other cases. Weights are 1 / sigma^2 with sigma not below `FLOOR` of the time: no case counts
without limit because its samples happened to agree.

A 95 % interval is the wider of two at either end: the covariance of the regression, scaled by the
residuals, with Student's t; and the percentiles of a bootstrap over cases (Efron and Tibshirani
1993), widened by sqrt(n / (n - p)) and t over z. The first is right where the model is, the second
also where residuals have a pattern. numpy is all that is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nsight_prof.parsers.bench.stats import t_quantile

Floats = NDArray[np.float64]

MODELS = {
    "none": (),
    "switches": ("turnaround",),
    "mix": ("mix_cost",),
    "batched": ("turnaround", "mix_cost"),
    "drain": ("mix_cost", "exponent", "log_batch"),
}
"""Models and the parameters of their penalties; before these stand s per byte read and written."""
REFERENCE = float(64 << 20)
"""Bytes of reads after a switch for which "drain" gives its cost."""
FLOOR = 1e-3
"""Least relative standard error of a time: what samples agree to says less about a model."""
RESAMPLES = 1000
Z = 1.959963984540054
"""97.5 % quantile of the normal distribution."""
STEPS = 60
EXPONENTS = np.linspace(0.0, 1.0, 11)
SIZES = 24
DAMPING = 1e-3


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

    @cached_property
    def both(self) -> Floats:
        """(cases, 2) bytes read and written."""
        return np.stack([self.reads, self.writes], axis=1)

    @cached_property
    def rarer(self) -> Floats:
        """M: bytes of the direction that has fewer."""
        return np.minimum(self.reads, self.writes)

    @cached_property
    def run(self) -> Floats:
        """Bytes of the rarer direction between two switches; infinite without a switch."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.switches > 0, self.rarer / self.switches, np.inf)

    @cached_property
    def log_runs(self) -> Floats:
        """(2, cases) logarithms of r and w; 0 without a switch."""
        switched = self.switches > 0
        return np.log(np.where(switched, self.both.T, 1) / np.where(switched, self.switches, 1))

    def __len__(self) -> int:
        return len(self.seconds)


@dataclass(frozen=True)
class Solved:
    """Many fits of a model: a row of `beta` (fits, parameters) is one of them; see MODELS.

    `loss` (fits,) are the weighted sums of squared residuals.
    """

    model: str
    beta: Any
    loss: Floats

    @property
    def quantities(self) -> dict[str, Floats]:
        """What MixFit has of each fit, by name, (fits,)."""
        read, write, *others = self.beta.T
        found = dict(zip(MODELS[self.model], others, strict=True))
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.model == "batched":
                found["batch"] = found["turnaround"] / found["mix_cost"]
            if self.model == "drain":
                p, log_batch = found["exponent"], found.pop("log_batch")
                growth = np.exp(p * math.log(REFERENCE) + (1 - p) * log_batch)
                found |= {"turnaround": found["mix_cost"] * growth, "batch": np.exp(log_batch)}
            return found | {"read_rate": 1 / read, "write_rate": 1 / write}


def predict(mixes: Mixes, solved: Solved, row: int = 0) -> Floats:
    """Return the seconds that one fit predicts for each case."""
    if solved.model == "drain":
        return np.asarray(_drained(mixes, solved.beta[row : row + 1])[0])
    return np.asarray(slopes(mixes, solved, row) @ solved.beta[row])


def slopes(mixes: Mixes, solved: Solved, row: int = 0) -> Floats:
    """Return derivatives of the predictions of one fit by its parameters (cases, parameters)."""
    if solved.model == "drain":
        return np.asarray(_jacobian(mixes, solved.beta[row : row + 1])[0])
    batch = solved.quantities["batch"][row] if solved.model == "batched" else 0.0
    return _columns(solved.model, mixes, batch)


def _columns(model: str, mixes: Mixes, batch: float = 0.0) -> Floats:
    """Return the design matrix of a linear model, for "batched" near `batch`: with both prices."""
    penalties = {
        "switches": [mixes.switches],
        "mix": [mixes.rarer],
        "batched": [
            np.where(short := mixes.run <= batch * (1 + 1e-12), 0.0, mixes.switches),
            np.where(short, mixes.rarer, 0.0),
        ],
    }
    return np.column_stack([mixes.both, *penalties.get(model, ())])


def _scaled(design: Floats) -> tuple[Floats, Floats]:
    """Return slopes (..., cases, parameters) over the largest of each parameter, and these."""
    scale = np.abs(design).max(axis=-2)
    scale[scale == 0] = 1.0
    return design / scale[..., None, :], scale


def _linear(design: Floats, seconds: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return parameters (fits, parameters) and losses (fits,) of a linear model."""
    scaled, scale = _scaled(design)
    products = scaled[:, :, None] * scaled[:, None, :]
    normal = (weights @ products.reshape(len(scaled), -1)).reshape(-1, *products.shape[1:])
    right = weights @ (scaled * seconds[:, None])
    found = np.einsum("fij,fj->fi", np.linalg.pinv(normal, hermitian=True), right)
    residuals = seconds - found @ scaled.T
    return found / scale, np.einsum("fn,fn->f", weights, residuals**2)


def solve(model: str, mixes: Mixes, weights: Floats) -> Solved:
    """Fit `model` once for each row of `weights` (fits, cases)."""
    if model == "drain":
        return Solved(model, *_solve_drain(mixes, weights))
    if model == "batched":
        return Solved(model, *_solve_batched(mixes, weights))
    return Solved(model, *_linear(_columns(model, mixes), mixes.seconds, weights))


def _solve_batched(mixes: Mixes, weights: Floats) -> tuple[Floats, Floats]:
    edges = np.unique(mixes.run[np.isfinite(mixes.run)])
    best, lowest = _at(mixes, weights, edges[0])
    for low, high in pairwise(edges):
        between = _linear(_columns("batched", mixes, low), mixes.seconds, weights)
        batch = Solved("batched", *between).quantities["batch"]
        inside = np.where((batch > low) & (batch < high), between[1], np.inf)
        for beta, loss in ((between[0], inside), _at(mixes, weights, high)):
            best = np.where((loss < lowest)[:, None], beta, best)
            lowest = np.minimum(loss, lowest)
    return best, lowest


def _at(mixes: Mixes, weights: Floats, batch: float) -> tuple[Floats, Floats]:
    """Solve "batched" with a given batch."""
    design = np.column_stack([mixes.both, mixes.rarer / np.maximum(mixes.run, batch)])
    beta, loss = _linear(design, mixes.seconds, weights)
    return np.column_stack([beta, beta[:, 2] / batch]), loss


def _shape(mixes: Mixes, beta: Floats) -> Floats:
    """Return the penalty of "drain" over c, (fits, cases)."""
    read_run, write_run = mixes.log_runs
    p, drained = beta[:, 3, None], np.minimum(write_run, beta[:, 4, None])
    return np.asarray(mixes.switches * np.exp(p * read_run + (1 - p) * drained))


def _drained(mixes: Mixes, beta: Floats) -> Floats:
    """Return the seconds that each fit of "drain" predicts for each case, (fits, cases)."""
    return np.asarray(beta[:, :2] @ mixes.both.T + beta[:, 2, None] * _shape(mixes, beta))


def _jacobian(mixes: Mixes, beta: Floats) -> Floats:
    """Return derivatives of the predictions of "drain" by its parameters, (fits, cases, 5)."""
    (read_run, write_run), shape = mixes.log_runs, _shape(mixes, beta)
    cost, p, batch = (beta[:, n, None] for n in (2, 3, 4))
    drained, beyond = np.minimum(write_run, batch), write_run > batch
    by_rate = np.broadcast_to(mixes.both, (len(beta), *mixes.both.shape))
    by_penalty = np.stack(
        [shape, cost * shape * (read_run - drained), cost * shape * (1 - p) * beyond], axis=2
    )
    return np.concatenate([by_rate, by_penalty], axis=2)


def _start(mixes: Mixes, weights: Floats) -> Floats:
    """Return the parameters of "drain" that are best on a grid of p and ln D."""
    runs = mixes.log_runs[1][mixes.switches > 0]
    sizes = np.linspace(runs.min(), runs.max(), SIZES)
    grid = np.array([[0.0, 0.0, 0.0, p, size] for p in EXPONENTS for size in sizes])
    both = np.broadcast_to(mixes.both, (len(grid), *mixes.both.shape))
    scaled, scale = _scaled(np.concatenate([both, _shape(mixes, grid)[:, :, None]], axis=2))
    root = np.sqrt(weights)
    scaled = scaled * root[:, None]
    linear = np.linalg.pinv(scaled) @ (mixes.seconds * root)
    errors = mixes.seconds * root - np.einsum("gnj,gj->gn", scaled, linear)
    best = int(np.argmin((errors**2).sum(axis=1)))
    return np.array([*(linear[best] / scale[best]), *grid[best, 3:]])


def _solve_drain(mixes: Mixes, weights: Floats) -> tuple[Floats, Floats]:
    def loss(beta: Floats) -> Floats:
        return np.asarray((weights * (mixes.seconds - _drained(mixes, beta)) ** 2).sum(axis=1))

    fits = len(weights)
    beta = np.tile(_start(mixes, weights.mean(axis=0)), (fits, 1))
    runs = mixes.log_runs[1][mixes.switches > 0]
    lowest = (-np.inf, -np.inf, -np.inf, 0.0, runs.min())
    highest = (np.inf, np.inf, np.inf, 1.0, runs.max())
    current, damping = loss(beta), np.full(fits, DAMPING)
    for _ in range(STEPS):
        scaled, scale = _scaled(_jacobian(mixes, beta))
        # Sums over three arrays by einsum are loops.
        weighted = (scaled * weights[:, :, None]).swapaxes(1, 2)
        normal = weighted @ scaled
        right = (weighted @ (mixes.seconds - _drained(mixes, beta))[:, :, None])[:, :, 0]
        diagonal = np.einsum("fii->fi", normal).copy()
        # Where a case weighs nothing, a parameter may have no slope; it then stays where it is.
        diagonal += 1e-12 * diagonal.max(axis=1, keepdims=True)
        damped = normal + (damping[:, None] * diagonal)[:, :, None] * np.eye(5)
        step = np.linalg.solve(damped, right[:, :, None])[:, :, 0] / scale
        tried = np.clip(beta + step, lowest, highest)
        reached = loss(tried)
        better = reached < current
        beta = np.where(better[:, None], tried, beta)
        settled = np.abs(current - reached) <= 1e-10 * current
        current = np.where(better, reached, current)
        damping = np.clip(np.where(better, damping / 5, damping * 4), 1e-9, 1e9)
        if settled.all():
            break
    return beta, current


class Estimate(NamedTuple):
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class MixFit:
    """One model, fitted.

    Attributes:
        model: one of MODELS.
        estimates: by name, as far as the model has them: read_rate and write_rate, B_read and
            B_write in bytes per second; turnaround, seconds a switch, of "drain" one that REFERENCE
            of reads follow; mix_cost, seconds a byte of the rarer direction, of "drain" for as many
            reads as writes in short runs; batch, bytes below which runs are gathered, D of "drain";
            exponent, p of "drain".
        predicted: seconds, one per case.
        error: root mean square of the relative residuals.
        left_out_error: the same where each mix was predicted from all other cases.
        aicc: lower is better; a difference under 2 is none.
    """

    model: str
    estimates: Mapping[str, Estimate]
    predicted: tuple[float, ...]
    error: float
    left_out_error: float
    aicc: float


def _half_widths(mixes: Mixes, weights: Floats, found: Solved) -> dict[str, float]:
    """Return half of each interval by the covariance of the model, linear near its parameters."""
    scaled, scale = _scaled(slopes(mixes, found))
    inverse = np.linalg.pinv((scaled * weights[:, None]).T @ scaled, hermitian=True)
    freedom = len(mixes) - len(scale)
    covariance = inverse * (float(found.loss[0]) / freedom) / np.outer(scale, scale)
    # Derivatives by steps along the imaginary axis, exact to rounding (Squire and Trapp 1998).
    steps = 1e-30
    moved = Solved(found.model, found.beta[0] + 1j * steps * np.eye(len(scale)), found.loss)
    gradients = {name: values.imag / steps for name, values in moved.quantities.items()}
    quantile = t_quantile(freedom)
    return {
        name: quantile * math.sqrt(max(float(gradient @ covariance @ gradient), 0.0))
        for name, gradient in gradients.items()
    }


def _estimates(
    mixes: Mixes, weights: Floats, found: Solved, draws: Solved
) -> Iterator[tuple[str, Estimate]]:
    free = len(mixes) - found.beta.shape[1]
    stretch = math.sqrt(len(mixes) / free) * t_quantile(free) / Z
    halves, drawn = _half_widths(mixes, weights, found), draws.quantities
    for name, (value, *_) in found.quantities.items():
        low, high = np.nanpercentile(drawn[name], (2.5, 97.5))
        below, above = (max(halves[name], stretch * off) for off in (value - low, high - value))
        yield name, Estimate(float(value), float(value - below), float(value + above))


def _root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _left_out_error(model: str, mixes: Mixes, weights: Floats) -> float:
    """Return the relative error of predicting each mix from all other cases."""
    mixed = np.flatnonzero(mixes.rarer > 0)
    without = np.tile(weights, (len(mixed), 1))
    without[np.arange(len(mixed)), mixed] = 0
    solved = solve(model, mixes, without)
    predicted = [predict(mixes, solved, row)[case] for row, case in enumerate(mixed)]
    return _root_mean_square(np.array(predicted) / mixes.seconds[mixed] - 1)


def fit(model: str, mixes: Mixes, *, seed: int = 0, resamples: int = RESAMPLES) -> MixFit:
    """Fit one model.

    Args:
        model: one of MODELS.
        mixes: the cases, at least three more than the model has parameters, mixes among them.
        seed: of the bootstrap.
        resamples: draws of cases with replacement of the bootstrap.

    Raises:
        ValueError: too few cases for this model.
    """
    count, free = len(mixes), 2 + len(MODELS[model])
    if count < free + 3 or not (mixes.rarer > 0).any():
        raise ValueError(f"{count} cases are too few to fit {free} parameters")
    weights = 1 / np.maximum(mixes.sigma, FLOOR * mixes.seconds) ** 2
    found = solve(model, mixes, weights[None, :])
    random = np.random.default_rng(seed)
    taken = random.multinomial(count, np.full(count, 1 / count), resamples)
    predicted = predict(mixes, found)
    k = free + 1  # the variance of the residuals is estimated, too
    return MixFit(
        model=model,
        estimates=dict(_estimates(mixes, weights, found, solve(model, mixes, taken * weights))),
        predicted=tuple(predicted.tolist()),
        error=_root_mean_square(predicted / mixes.seconds - 1),
        left_out_error=_left_out_error(model, mixes, weights),
        aicc=count * math.log(max(float(found.loss[0]), 1e-300) / count)
        + 2 * k
        + 2 * k * (k + 1) / max(count - k - 1, 1),
    )


def fit_all(mixes: Mixes, *, resamples: int = RESAMPLES) -> list[MixFit]:
    """Return every model that the cases allow, the best by AICc first."""
    fitted = []
    for model in MODELS:
        try:
            fitted.append(fit(model, mixes, resamples=resamples))
        except ValueError:
            continue
    return sorted(fitted, key=lambda model_fit: model_fit.aicc)
