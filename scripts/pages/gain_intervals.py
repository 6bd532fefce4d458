"""How far gains that were promised lay from measured ones, for docs/proof.md and the reports."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nsight_prof.reports.findings.gain_intervals import LEAST, OTHERS, UNPRICED
from nsight_prof.reports.page.formats import share, significant
from scripts.pages.programs import FAULT, LOOKS, Judged, recorded_look

ENOUGH = 8
"""Measured repairs from which on a rule has an interval of its own."""
ENDS = (0.1, 0.9)
"""Quantiles at the ends: four of five repairs lie between."""
TIME = re.compile(r"takes? [\d.]+ % of the GPU time \(([\d.,]+) (us|ms|s) in")
MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
FACTORS = (1.3, 1.5)


@dataclass(frozen=True)
class Repair:
    """A repair of a first look: what was promised, of a kernel that promises nothing its part of
    the time, and what it saved, as parts of the program's time.
    """

    look: str
    rule: str
    promised: float
    saved: float

    @property
    def factor(self) -> float:
        """What it saved of what was promised."""
        return self.saved / self.promised


def repairs() -> list[Repair]:
    """Return the repairs of all first looks whose cause was named."""
    names = [name for name, heading in LOOKS.items() if "in sample" not in heading]
    return [
        found
        for name in names
        for one in recorded_look(name).judged
        if one.rank and one.answer.gain >= FAULT
        if (found := _repair(name, one)) is not None
    ]


def _repair(look: str, one: Judged) -> Repair | None:
    assert one.rank
    said = one.answer.slow[one.rank - 1]
    if (said.gain or 0.0) >= LEAST:
        return Repair(look, said.cause, said.gain or 0.0, one.answer.gain)
    took = TIME.search(said.sentence)
    if not said.cause.endswith("_saturated") or took is None:
        return None
    time_ms = float(took[1].replace(",", "")) * MS[took[2]]
    return Repair(look, UNPRICED, time_ms / one.answer.slow_nsys_ms, one.answer.gain)


def intervals(told: Sequence[Repair]) -> dict[str, tuple[int, float, float]]:
    """Return for each rule the number of repairs and the factors that four of five lie between."""
    of_rule: dict[str, list[float]] = defaultdict(list)
    for one in told:
        of_rule[one.rule].append(one.factor)
        if one.rule != UNPRICED:
            of_rule[OTHERS].append(one.factor)
    found = {}
    for rule, factors in sorted(of_rule.items()):
        if len(factors) >= ENOUGH:
            low, high = (float(np.quantile(factors, end)) for end in ENDS)
            found[rule] = len(factors), low, high
    return found


def as_yaml() -> str:
    """Return the file that reports read."""
    rows = [
        f"- {{rule: {rule}, programs: {n}, low: {low:.3g}, high: {high:.3g}}}"
        for rule, (n, low, high) in intervals(repairs()).items()
    ]
    head = "# Written by scripts/gain_intervals.py from the first looks of tests/proof_programs."
    return "\n".join((head, *rows)) + "\n"


def _covered(told: Sequence[Repair], chosen: Sequence[Repair]) -> str:
    """Say how many of some repairs lie in the intervals that the other looks give."""
    known_without = {
        look: intervals([other for other in told if other.look != look])
        for look in {one.look for one in chosen}
    }
    covered = 0
    for one in chosen:
        known = known_without[one.look]
        _, low, high = known.get(one.rule, known[OTHERS])
        covered += low * one.promised <= one.saved <= min(high * one.promised, 1.0)
    return f"{covered} of {len(chosen)} ({share(covered / len(chosen))})"


def _estimates(told: Sequence[Repair], guess: Callable[[list[Repair], Repair], float]) -> str:
    """Return how many estimates are within the factors, each from the other looks."""
    others = {
        look: [other for other in told if other.look != look] for look in {one.look for one in told}
    }
    ratios = [guess(others[one.look], one) / one.saved for one in told]
    cells = [sum(1 / factor <= ratio <= factor for ratio in ratios) for factor in FACTORS]
    return " | ".join(f"{cell} of {len(told)}" for cell in cells)


def interval_section() -> list[str]:
    """Return the parts of docs/proof.md about the intervals of gains."""
    told = repairs()
    priced = [one for one in told if one.rule != UNPRICED]
    unpriced = [one for one in told if one.rule == UNPRICED]
    rows = [
        f"| `{rule}` | {n} | {significant(low, 2)} to {significant(high, 2)} |"
        for rule, (n, low, high) in intervals(told).items()
    ]

    def median(others: Sequence[Repair], rule: str = "") -> float:
        factors = [one.factor for one in others if rule in ("", one.rule)]
        return float(np.median(factors)) if len(factors) >= ENOUGH or not rule else 1.0

    tried = (
        ("as promised", _estimates(priced, lambda _, one: one.promised)),
        ("x the median factor of the rule, where it has one",
         _estimates(priced, lambda others, one: min(1.0, one.promised * median(others, one.rule)))),
        ("kernels that fill a unit: nothing, as promised",
         _estimates(unpriced, lambda _, one: 0.0)),
        ("kernels that fill a unit: median factor x their part of the time",
         _estimates(unpriced, lambda others, one: min(1.0, one.promised * median(others)))),
        ("kernels that fill a unit: median gain",
         _estimates(unpriced, lambda others, _: float(np.median([o.saved for o in others])))),
    )  # fmt: skip
    return [
        "## Intervals of gains",
        "What fixes saved of what was promised for them, in first looks at whole programs whose "
        "cause was named: four of five lie between. Reports give these intervals beside each gain "
        f"of {share(LEAST)} or more (`scripts/gain_intervals.py`). With the intervals of the other "
        f"looks, {_covered(told, priced)} of the measured gains are covered, and "
        f"{_covered(told, unpriced)} of those of kernels that fill a unit: these promise nothing, "
        "since no counter tells whether some of their work is needless, and their interval is of "
        "their time. Fixed twins have such kernels, too.",
        "\n".join(
            ("| rule | repairs | saved of what was promised |", "| --- | ---: | ---: |", *rows)
        ),
        "Estimates that were tried, each from the other looks only:",
        "\n".join(
            (
                "| estimate | within 1.3 | within 1.5 |",
                "| --- | ---: | ---: |",
                *(f"| {name} | {cells} |" for name, cells in tried),
            )
        ),
    ]
