"""How far served models lie from predictions of their steps: what intervals rest on.

residuals.yaml holds measured over predicted medians of recorded serving points, by GPU, by what was
predicted from and by model; scripts/accuracy.py writes it from captures/. Steps of a model are
moved by the median of the residuals of other models, and bounded by their percentiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.predict.fit import HIGH, LOW
from nsight_prof.parsers.predict.operators import Step

KERNELS, SLICE = "kernels", "slice"
"""What a prediction rests on: measured kernels alone, or recorded layers of the model."""
TPOT, LONG, SHORT = "tpot", "ttft_long", "ttft_short"
LONG_TOKENS = 1000
"""Tokens of prompts from which on the GPU decides their time, and not the host."""
FEWEST = 2
"""Models that must have residuals, so that a spread between models is known."""


class Factors(NamedTuple):
    """What a predicted time is multiplied by, for its value and the bounds of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Correction:
    """Factors of the steps of a model: those that generate, and those of long and short prompts."""

    decode: Factors
    long: Factors
    short: Factors

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
    return Correction(_factors(found[TPOT], unseen), _factors(found[LONG], unseen), short)


def _factors(residuals: Mapping[str, list[float]], unseen: str) -> Factors:
    values = [r for model, found in residuals.items() if model != unseen for r in found]
    return Factors(*(float(value) for value in np.percentile(values, [50, LOW, HIGH])))
