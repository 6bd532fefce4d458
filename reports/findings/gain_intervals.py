"""How far off gains may be: what repairs of whole programs saved of what was promised for them.

The factors are those of first looks, in which rules judged programs that nobody had seen
(docs/proof.md); `scripts/gain_intervals.py` works them out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, partial

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Evidence, Number, Text
from nsight_prof.reports.page.values import Interval

LEAST = 0.02
"""Part of the time from which a gain has an interval: less is within the noise of two runs."""
OTHERS, UNPRICED = "others", "saturated"
"""Rows of rules with few measured repairs, and of kernels that fill a unit, which promise nothing:
whether some of their work is needless, no counter tells."""
GAIN = partial(Text, "80 % of {n} measured fixes of such findings saved")
OF_ALL = partial(Text, "80 % of {n} measured fixes of all kinds saved")
TIME = partial(Text, "80 % of {n} measured fixes saved, by less work")
OF_GAIN = partial(Text, "prof: first looks at whole programs, {low} to {high} of what was promised")
OF_TIME = partial(
    Text,
    "prof: first looks at whole programs, {low} to {high} of the time of the kernels; whether some "
    "of their work is needless, no counter tells",
)


@dataclass(frozen=True)
class Measured:
    """What repairs of a number of programs saved: four of five from `low` to `high` times what was
    promised by a rule, or the time of the kernels where nothing was.
    """

    rule: str
    programs: int
    low: float
    high: float


@cache
def measured_repairs() -> dict[str, Measured]:
    """Return what repairs saved, by rule."""
    rows = packaged_yaml("nsight_prof.reports.findings", "gain_intervals.yaml")
    return {row["rule"]: Measured(**row) for row in rows}


def with_interval(finding: Finding, kernels_ns: float, whole_ns: float) -> Finding:
    """Return a finding with the interval of what its repair saves, where one is known."""
    unpriced = finding.rule.endswith("_saturated") and not finding.gain_ns > 0
    promised = finding.share * kernels_ns if unpriced else finding.gain_ns
    if not promised >= LEAST * whole_ns or not finding.rule:
        return finding
    known = measured_repairs()
    factors = known[UNPRICED] if unpriced else known.get(finding.rule, known[OTHERS])
    most_ns = kernels_ns if finding.gain_of == "GPU time" else whole_ns
    low_ns, high_ns = (min(times * promised, most_ns) for times in (factors.low, factors.high))
    label = TIME if unpriced else GAIN if finding.rule in known else OF_ALL
    low, high = (Number(times, "x", digits=2) for times in (factors.low, factors.high))
    return replace(
        finding,
        evidence=(
            *finding.evidence,
            Evidence(
                label(n=factors.programs),
                Interval(low_ns, high_ns, "ns"),
                source=(OF_TIME if unpriced else OF_GAIN)(low=low, high=high),
            ),
        ),
        low_ns=math.nan if unpriced else low_ns,
        high_ns=high_ns,
    )
