"""View models of a sweep: its variants, and their kernels, stages and cases side by side."""

from __future__ import annotations

from dataclasses import dataclass

from nsight_prof.reports.page import Name, Text, Value
from nsight_prof.reports.page.formats import brief
from nsight_prof.reports.profile.view_models import Fact

LONGEST = 30
"""Characters of a name up to which it heads columns and labels bars."""


@dataclass(frozen=True)
class SweepCell:
    """A kernel, stage or case in one variant; `ratio` is its time over that of the baseline."""

    total_ns: float | None = None
    share: float | None = None
    calls: int | None = None
    ratio: float | None = None
    bound_by: str = ""


@dataclass(frozen=True)
class SweepRow:
    """A kernel (by readable name), stage or case; `cells` follow SweepView.variants."""

    name: str
    cells: tuple[SweepCell, ...]


@dataclass(frozen=True)
class VariantColumn:
    """One variant of a sweep; `ratio` is its GPU time over that of the baseline.

    Of a benchmark, `ratio` is the geometric mean of the times of its cases over those there.
    `settings` are only the keys that differ between variants; `number` is its place among them, by
    which pages call one whose name is long. `per_unit_ns` is its GPU time over
    the units of work that its arguments count, `work` these units over those of the baseline; None
    where they are not known. `problem` says why there are no numbers.
    """

    name: str
    settings: tuple[Fact, ...]
    gpu_time_ns: float | None = None
    wall_ns: float | None = None
    idle_share: float | None = None
    launches: int | None = None
    ratio: float | None = None
    per_unit_ns: float | None = None
    work: float | None = None
    headline: str = ""
    problem: str = ""
    number: int = 1

    @property
    def label(self) -> Text | str:
        """Its name, for headings and pictures; its number where that is long."""
        return self.name if len(self.name) <= LONGEST else Text("variant {n}", n=self.number)

    @property
    def title(self) -> Value:
        """Its settings, for sentences; its name where they are long or do not differ."""
        settings = ", ".join(f"{fact.label} = {fact.value}" for fact in self.settings)
        if settings and len(settings) <= 2 * LONGEST:
            return Name(settings)
        if isinstance(self.label, str):
            return Name(self.name)
        name = Name(brief(self.name, 2 * LONGEST))
        return Text("{variant} ({name})", variant=self.label, name=name)


@dataclass(frozen=True)
class SweepView:
    """Comparison of the variants of a sweep; the first one that has numbers is the baseline.

    `unit` is what a unit of work is called, empty where the variants do the same work or it is not
    known how much. `cases` are those of benchmarks, by id, with the median time per call.
    """

    title: str
    question: str
    unit: str
    variants: tuple[VariantColumn, ...]
    stages: tuple[SweepRow, ...] = ()
    kernels: tuple[SweepRow, ...] = ()
    cases: tuple[SweepRow, ...] = ()
