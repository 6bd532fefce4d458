"""A finding: the verdict first, then what it rests on and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from nsight_prof.reports.page.number import Number
from nsight_prof.reports.page.text import Name, Text, Value

Confidence: TypeAlias = Literal["", "high", "medium", "low"]
"""How sure a finding is; "" where that is not graded."""


@dataclass(frozen=True)
class Evidence:
    """One number that a finding rests on, and what it is.

    `threshold` is the limit that it is held to, `source` whose number or limit it is.
    """

    label: Text
    value: Value
    threshold: Text | None = None
    source: Text | None = None


@dataclass(frozen=True)
class OpenQuestion:
    """What the measurements do not tell, with the reason.

    `plain` is the same for readers who do not know GPUs; None where it is nothing to them.
    """

    text: Text
    plain: Text | None = None


@dataclass(frozen=True)
class Finding:
    """One thing that the measurements support.

    Attributes:
        rule: key of the rule that found it.
        verdict: the sentence that a reader takes away.
        evidence: numbers, or sentences about them.
        action: what to do.
        disproof: where it ends, or what would disprove it.
        gain: what the action saves: a time, or a part of the run (unit "fraction").
        confidence: how sure it is; "" where that is not graded.
        source: the cases or kernels whose numbers the verdict tells.
        plain: the verdict for readers who do not know GPUs, where it takes other words.
        technical: it is nothing to these readers.
    """

    rule: str
    verdict: Text
    evidence: tuple[Evidence | Text, ...] = ()
    action: Text | None = None
    disproof: Text | None = None
    gain: Number | None = None
    confidence: Confidence = ""
    source: tuple[Name, ...] = ()
    plain: Text | None = None
    technical: bool = False
