"""Frozen view models of a sweep: kernels and stages side by side over the variants of a run.

Units and the meaning of None are as in reports/view_models.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from nsight_prof.reports.view_models import Caveat, Fact


@dataclass(frozen=True)
class SweepCell:
    """One kernel or stage in one variant; `ratio` is its time over that of the baseline."""

    total_ns: float | None
    share: float | None
    calls: int | None
    ratio: float | None
    bound_by: str


@dataclass(frozen=True)
class SweepRow:
    """A kernel (by readable name), stage or case; `cells` follow SweepView.variants."""

    name: str
    cells: tuple[SweepCell, ...]


@dataclass(frozen=True)
class VariantColumn:
    """One variant of a sweep; `ratio` is its GPU time over that of the baseline.

    Of a benchmark, `ratio` is the geometric mean of the times of its cases over those there.
    `settings` are only the keys that differ between variants. `per_unit_ns` is its GPU time over
    the units of work that its arguments count, `work` these units over those of the baseline; None
    where they are not known. `problem` says why there are no numbers.
    """

    name: str
    settings: tuple[Fact, ...]
    gpu_time_ns: float | None
    wall_ns: float | None
    idle_share: float | None
    launches: int | None
    ratio: float | None
    per_unit_ns: float | None
    work: float | None
    headline: str
    problem: str


@dataclass(frozen=True)
class SweepView:
    """Comparison of the variants of a sweep; the first one that has numbers is the baseline.

    `unit` is what a unit of work is called, empty where the variants do the same work or it is not
    known how much. `cases` are those of benchmarks, by id, with the median time of a call.
    """

    title: str
    question: str
    answer: tuple[str, ...]
    unit: str
    variants: tuple[VariantColumn, ...]
    stages: tuple[SweepRow, ...]
    kernels: tuple[SweepRow, ...]
    cases: tuple[SweepRow, ...]
    caveats: tuple[Caveat, ...]
