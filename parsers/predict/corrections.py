"""How far served models lie from predictions of their steps: what intervals rest on.

residuals.yaml holds measured over predicted medians of recorded serving points, by GPU, by what was
predicted from and by model, and point_residuals.yaml those of whole points, batches and closed
loops of servers, with steps that are corrected; scripts/accuracy.py writes both from captures/.
Steps of a model are moved by the median of the residuals of other models, and bounded by their
percentiles. Each model counts as much as another, and which percentiles hold 90 % is known from
models that are left out in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.predict.operators import Step

KERNELS, SLICE = "kernels", "slice"
"""What a prediction rests on: measured kernels alone, or recorded layers of the model."""
TPOT, LONG, SHORT = "tpot", "ttft_long", "ttft_short"
LONG_TOKENS = 1000
"""Tokens of prompts from which on the GPU decides their time, and not the host."""
THROUGHPUT = "throughput"
FEWEST = 2
"""Models that must have residuals, so that a spread between models is known."""
HOLDS = 0.9
"""Part of the residuals of a model that is left out which an interval shall hold."""
LEVELS = (5.0, 4.0, 3.0, 2.0, 1.0, 0.0)
"""Lower percentiles that are tried: the first that holds so many is taken, else the last."""


class Factors(NamedTuple):
    """What a predicted time is multiplied by, for its value and the bounds of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Correction:
    """Factors of the steps of a model: those that generate, and those of long and short prompts.

    `points`: bounds of whole points, by how requests come and by what: "batch throughput".
    """

    decode: Factors
    long: Factors
    short: Factors
    points: Mapping[str, Factors] = field(default_factory=dict)

    def of(self, step: Step) -> Factors:
        """Return the factors of a step."""
        if not step.prefill:
            return self.decode
        return self.long if step.tokens >= LONG_TOKENS else self.short


def correction(
    gpu: str, basis: str, unseen: str = "", host_known: bool = False
) -> Correction | None:
    """Return how served models lie from predictions; None where too few were recorded.

    Args:
        gpu: key of its datasheet.
        basis: KERNELS or SLICE.
        unseen: model whose own residuals do not count, since it is held out.
        host_known: how long the host needs was recorded, so that short prompts are not moved.
    """
    found = packaged_yaml("nsight_prof.parsers.predict", "residuals.yaml").get(gpu, {}).get(basis)
    if found is None or len(found[TPOT].keys() - {unseen}) < FEWEST:
        return None
    short = _factors(found[SHORT], unseen)
    if host_known:
        short = short._replace(value=1.0)
    points = {}
    if basis == SLICE:
        by_kind = packaged_yaml("nsight_prof.parsers.predict", "point_residuals.yaml").get(gpu, {})
        points = {kind: _factors(of, unseen) for kind, of in by_kind.items()
                  if len(of.keys() - {unseen}) >= FEWEST}  # fmt: skip
    return Correction(_factors(found[TPOT], unseen), _factors(found[LONG], unseen), short, points)


def _factors(residuals: Mapping[str, list[float]], unseen: str) -> Factors:
    known = [found for model, found in residuals.items() if model != unseen]
    level = next((each for each in LEVELS if _part_within(known, each) >= HOLDS), LEVELS[-1])
    return Factors(*_percentiles(known, (50, level, 100 - level)))


def _part_within(models: Sequence[Sequence[float]], level: float) -> float:
    """Return which part of the residuals lies within bounds that other models give."""
    within = []
    for number, residuals in enumerate(models):
        others = [*models[:number], *models[number + 1 :]]
        low, high = _percentiles(others, (level, 100 - level))
        within += [low <= value <= high for value in residuals]
    return float(np.mean(within))


def _percentiles(models: Sequence[Sequence[float]], levels: Sequence[float]) -> list[float]:
    """Return percentiles of residuals, of which those of each model weigh one together."""
    values = np.concatenate([np.asarray(found) for found in models])
    weights = np.concatenate([np.full(len(found), 1 / len(found)) for found in models])
    order = np.argsort(values)
    below = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
    return [float(value) for value in np.interp(np.asarray(levels) / 100, below, values[order])]
