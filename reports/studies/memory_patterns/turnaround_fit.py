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

"batched" is "switches" for long runs and "mix" with c = t_turnaround / batch for short ones. Models
are compared by AICc (Hurvich and Tsai 1989) and by the error of predicting each mix from all other
cases. Weights are 1 / sigma^2 with sigma not below `FLOOR` of the time: no case counts without
limit because its samples happened to agree.

A 95 % interval is the wider of two at either end: the covariance of the regression, scaled by the
residuals, with Student's t; and the percentiles of a bootstrap over cases (Efron and Tibshirani
1993), widened by sqrt(n / (n - p)) and t over z. The first is right where the model is, the second
also where residuals have a pattern. numpy is all that is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.bench.stats import t_quantile
from nsight_prof.reports.studies.memory_patterns.turnaround_solve import (
    Floats,
    Mixes,
    Solved,
    covariance,
    gradients,
    predict,
    slopes,
    solve,
)

MODELS = {"none": 2, "switches": 3, "mix": 3, "batched": 4, "drain": 5}
"""Models and how many parameters they have: two bandwidths, and those of the penalty."""

FLOOR = 1e-3
"""Least relative standard error of a time: what samples agree to says less about a model."""

RESAMPLES = 1000
Z = 1.959963984540054
"""97.5 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class MixFit:
    """One model, fitted.

    Attributes:
        model: one of MODELS.
        read_rate, write_rate: B_read and B_write, bytes per second.
        turnaround: seconds a switch, where the model has it; "drain" gives it for a switch that
            64 MiB of reads follow (REFERENCE of reports.studies.memory_patterns.turnaround_solve).
        mix_cost: seconds a byte of the rarer direction: c, or t_turnaround / batch; of "drain" for
            as many reads as writes in short runs.
        batch: bytes below which runs are gathered; D of "drain".
        exponent: p of "drain".
        predicted: seconds, one per case.
        error: root mean square of the relative residuals.
        left_out_error: the same where each mix was predicted from all other cases.
        aicc: lower is better; a difference under 2 is none.
    """

    model: str
    read_rate: Estimate
    write_rate: Estimate
    turnaround: Estimate | None
    mix_cost: Estimate | None
    batch: Estimate | None
    exponent: Estimate | None
    predicted: tuple[float, ...]
    error: float
    left_out_error: float
    aicc: float


def _resampled(weights: Floats, resamples: int, seed: int) -> Floats:
    """Return the weights of `resamples` draws of cases with replacement, (resamples, cases)."""
    count = len(weights)
    rng = np.random.default_rng(seed)
    return np.asarray(rng.multinomial(count, np.full(count, 1 / count), resamples) * weights)


def _by_regression(model: str, mixes: Mixes, weights: Floats, found: Solved) -> dict[str, Estimate]:
    """Return intervals from the covariance of the model, linear near its parameters."""
    design = slopes(model, mixes, found)
    cov = covariance(design, weights, float(found.loss[0]))
    quantile = t_quantile(len(mixes) - design.shape[1])
    candidates = {}
    for name, (value, gradient) in gradients(model, found).items():
        half = quantile * math.sqrt(max(float(gradient @ cov @ gradient), 0.0))
        candidates[name] = Estimate(value, value - half, value + half)
    return candidates


def _by_bootstrap(model: str, mixes: Mixes, draws: Solved, name: str, value: float) -> Estimate:
    with np.errstate(divide="ignore", invalid="ignore"):
        values = {
            "read_rate": 1 / draws.rates[:, 0],
            "write_rate": 1 / draws.rates[:, 1],
            "turnaround": draws.turnaround,
            "mix_cost": draws.mix_cost,
            "batch": draws.batch,
            "exponent": draws.exponent,
        }[name]
    count, free = len(mixes), MODELS[model]
    stretch = math.sqrt(count / (count - free)) * t_quantile(count - free) / Z
    low, high = (float(end) for end in np.nanpercentile(values, (2.5, 97.5)))
    return Estimate(value, value - (value - low) * stretch, value + (high - value) * stretch)


def _wider(a: Estimate, b: Estimate) -> Estimate:
    return Estimate(a.value, min(a.low, b.low), max(a.high, b.high))


def _left_out_error(model: str, mixes: Mixes, weights: Floats) -> float:
    """Return the relative error of predicting each mix from all other cases."""
    mixed = np.flatnonzero(mixes.rarer > 0)
    without = np.tile(weights, (len(mixed), 1))
    without[np.arange(len(mixed)), mixed] = 0
    solved = solve(model, mixes, without)
    errors = [
        predict(model, mixes, solved, row)[case] / mixes.seconds[case] - 1
        for row, case in enumerate(mixed)
    ]
    return _root_mean_square(np.array(errors))


def _root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2))) if len(values) else math.nan


def fit(model: str, mixes: Mixes, *, seed: int = 0, resamples: int = RESAMPLES) -> MixFit:
    """Fit one model.

    Args:
        model: one of MODELS.
        mixes: the cases, at least three more than the model has parameters, mixes among them.
        seed: of the bootstrap.
        resamples: draws of the bootstrap.

    Raises:
        ValueError: too few cases for this model.
    """
    count, free = len(mixes), MODELS[model]
    if count < free + 3 or not (mixes.rarer > 0).any():
        raise ValueError(f"{count} cases are too few to fit {free} parameters")
    weights = 1 / np.maximum(mixes.sigma, FLOOR * mixes.seconds) ** 2
    found = solve(model, mixes, weights[None, :])
    draws = solve(model, mixes, _resampled(weights, resamples, seed))
    candidates = {
        name: _wider(candidate, _by_bootstrap(model, mixes, draws, name, candidate.value))
        for name, candidate in _by_regression(model, mixes, weights, found).items()
    }
    predicted = predict(model, mixes, found)
    k = free + 1  # the variance of the residuals is estimated, too
    return MixFit(
        model=model,
        read_rate=candidates["read_rate"],
        write_rate=candidates["write_rate"],
        turnaround=candidates.get("turnaround"),
        mix_cost=candidates.get("mix_cost"),
        batch=candidates.get("batch"),
        exponent=candidates.get("exponent"),
        predicted=tuple(float(value) for value in predicted),
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


def by_name(fitted: Sequence[MixFit], model: str) -> MixFit | None:
    """Return one model of `fit_all`; None where there were too few cases for it."""
    return next((model_fit for model_fit in fitted if model_fit.model == model), None)
