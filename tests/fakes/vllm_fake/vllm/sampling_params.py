"""How tokens are chosen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RequestOutputKind(Enum):
    """What the outputs of a step hold."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclass
class SamplingParams:
    """Parameters of a request."""

    max_tokens: int | None = 16
    temperature: float = 1.0
    ignore_eos: bool = False
    detokenize: bool = True
    seed: int | None = None
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
