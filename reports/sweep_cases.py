"""Compares the cases of a sweep of benchmarks: each variant with the first one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nsight_prof.parsers.cells import known, number
from nsight_prof.reports.compare.cases import case_changes, geometric_mean, timed_cases
from nsight_prof.reports.compare.sides import Side
from nsight_prof.reports.formats import share, speedup
from nsight_prof.reports.load import Run
from nsight_prof.reports.sweep_models import SweepCell

SAME = 0.02
"""Variants closer than this are called equal: two runs of one program differ by as much."""
OVER = "geometric mean of the cases that both measured"


def case_cells(run: Run) -> dict[str, SweepCell]:
    """Return the median time of a call of each case that was measured, by its id."""
    return {
        key: SweepCell(known(1e9 * number(row["median_s"])), None, None, None, "")
        for key, row in timed_cases(run).items()
    }


def case_ratios(runs: Mapping[str, Run]) -> dict[str, float]:
    """Return the times of each benchmark over those of the first, by variant.

    Geometric mean of the cases that both measured; a variant without any is left out.
    """
    sides = [Side(name, run) for name, run in runs.items() if run.is_bench]
    means = {side.label: geometric_mean(case_changes(sides[0], side, 0.0)) for side in sides}
    return {name: mean.ratio for name, mean in means.items() if mean and mean.ratio}


def case_answer(ratios: Sequence[tuple[str, float]]) -> list[str]:
    """Say which variants are fastest and slowest; `ratios` are names and times over the first."""
    if len(ratios) < 2:
        return ["Fewer than two variants have cases in common, so nothing can be compared."]
    (best, least), (worst, most) = (pick(ratios, key=lambda r: r[1]) for pick in (min, max))
    if most / least - 1 < SAME:
        return [f"All variants take the same time within {share(SAME)} ({OVER})."]
    return [
        f"{best} takes the least time, {speedup(least)} that of the first variant, and {worst} the "
        f"most, {speedup(most)} ({OVER})."
    ]
