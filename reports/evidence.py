"""What a finding is: a sentence with its evidence; and the wording and thresholds behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from nsight_prof.parsers.packaged import packaged_yaml


@dataclass(frozen=True)
class Evidence:
    """One number behind a finding: what was seen, the threshold it is held to, and its source.

    `where` says where a reader finds the number in the run: keys of parsers/metrics.yaml (whose
    counters they name, such as "dram_pct"), or "table.column" of a table of the run (such as
    "kernels.duration_ns"). A derived number names each one that it is worked out from. Empty means
    that it stands in neither.
    """

    metric: str
    value: float
    unit: str
    threshold: str = ""
    source: str = ""
    where: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """Something that a reader can act on.

    `share` is the part of the GPU time that it is about; `gain_kernel` the part of that which would
    be saved at most, never beyond the roof; `gain_program` the same of the GPU time of all kernels
    (Amdahl: share x gain_kernel); `gain_ns` as time. `gain_of` says of what time the gain is:
    "GPU time", or "wall time" for idle time and copies. NaN is unknown. `headline` is one short
    sentence for the terminal, `action` says what to do and `advice` the same without jargon,
    `confidence` is high, medium or low, `cause` the key of the rule behind it (docs/rules.md), and
    `disprove` what one would see if it were wrong. `stage` is the one that it is about, empty for
    the whole program.
    """

    key: str
    title: str
    headline: str
    sentence: str
    kernel_ids: tuple[str, ...] = ()
    share: float = math.nan
    evidence: tuple[Evidence, ...] = ()
    gain_kernel: float = math.nan
    gain_program: float = math.nan
    gain_ns: float = math.nan
    gain_of: str = "GPU time"
    bound: str = ""
    action: str = ""
    advice: str = ""
    confidence: str = "high"
    cause: str = ""
    disprove: str = ""
    stage: str = ""


@cache
def wording() -> dict[str, dict[str, Any]]:
    """Return the sections of findings.yaml."""
    loaded: dict[str, dict[str, Any]] = packaged_yaml("nsight_prof.reports", "findings.yaml")
    return loaded


def threshold(key: str) -> float:
    """Return a threshold of findings.yaml."""
    return float(wording()["thresholds"][key]["value"])


def source(key: str) -> str:
    """Return where a threshold comes from."""
    return str(wording()["thresholds"][key]["source"])


def say(section: str, key: str, **values: str) -> str:
    """Return the sentence `key` of `section` with its values filled in."""
    return str(wording()[section][key]).format(**values)
