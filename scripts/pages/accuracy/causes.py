"""Says of each missed row of "What is asked" which of its points miss it, and what these wait for.

Tables of docs/accuracy.md; scripts/accuracy.py writes the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pandas as pd

TTFT = "ttft"
WAITS = {
    "gpu": "the GPU",
    "host": "the host, beyond graphs",
    "host in graphs": "the host, in graphs",
}
"""What a first token waits for, by the end of the kind of an error."""


class Today(NamedTuple):
    """A point as the models of today predict it, with its model left out: error and kind.

    `covered`: whether the truth lies within its interval; NaN where there is none.
    """

    error: float
    kind: str
    covered: float = math.nan


Key = tuple[str, str, str]
"""Truth, case and quantity of a point."""


def today(truth: str, errors: pd.DataFrame) -> Iterator[tuple[Key, Today]]:
    """Yield the held-out errors of a validation by their keys."""
    columns = (errors[name] for name in ("case", "name", "error", "kind", "covered"))
    for case, name, error, kind, covered in zip(*columns, strict=True):
        yield (truth, str(case), str(name)), Today(float(error), str(kind), float(covered))


def rows(
    what: str, where: str, points: pd.DataFrame, known: Mapping[Key, Today]
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of points of a missed row, by what they wait for.

    Args:
        what, where: of the row.
        points: truth, case, name and error of each, as it was predicted.
        known: the points as the models of today predict them.
    """
    keys = zip(points["truth"], points["case"], points["name"], strict=True)
    found = [known.get((str(truth), str(case), str(name))) for truth, case, name in keys]
    points = points.assign(
        today=[math.nan if item is None else item.error for item in found],
        part=[_part(item) for item in found],
        off=points["error"].abs(),
    )
    every = points["off"].sum()
    for part, of_part in sorted(points.groupby("part"), key=lambda item: -item[1]["off"].sum()):
        now = of_part["today"].dropna()
        yield (
            what, where, str(part), str(len(of_part)), f"{of_part['off'].sum() / every:.0%}",
            f"{of_part['off'].mean():.1%}", f"{of_part['error'].mean():+.1%}",
            f"{now.abs().mean():.1%}" if len(now) else "–",
            f"{now.mean():+.1%}" if len(now) else "–",
        )  # fmt: skip


def _part(item: Today | None) -> str:
    """Return what a point waits for; other quantities than TTFT are not divided."""
    if item is None:
        return "–"
    _, _, kind = item.kind.partition(f"{TTFT} ")
    return WAITS.get(kind, "–")
