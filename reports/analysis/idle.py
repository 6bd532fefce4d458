"""Idle time of the GPU by stage and cause."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers.cells import count, text
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.gpu_times import per_gpu_gaps
from nsight_prof.reports.analysis.stages import ALL, stage_rows
from nsight_prof.reports.page import Name, Number, Ref, Text


@dataclass(frozen=True)
class Gaps:
    """The idle time of one cause in a stage, or in the whole capture; `rows` may be of others, too.

    Of several GPUs times and numbers are the mean of one: a number of gaps may have a fraction.
    `rows` are those of table `idle_gaps`.
    """

    stage: str
    cause: str
    rows: pd.DataFrame

    @property
    def idle(self) -> Number:
        """Sum of the gaps."""
        return self._number("idle_ns", "ns")

    @property
    def count(self) -> Number:
        """How many there are."""
        return self._number("gaps", "count")

    @property
    def mean(self) -> Number:
        """Mean length."""
        return self.idle.per(self.count, "ns")

    @property
    def longest(self) -> Number:
        """The longest gap."""
        return Number(self.rows["longest_ns"].max(), "ns", self._refs("longest_ns"))

    @property
    def late_calls(self) -> Number:
        """Gaps whose launch call began only after the GPU had run out of work."""
        return self._number("late_calls", "count")

    @property
    def before_call(self) -> Number:
        """Idle time before the launch calls that ended the gaps."""
        return self._number("before_call_ns", "ns")

    @property
    def in_call(self) -> Number:
        """Idle time within these calls."""
        return self._number("in_call_ns", "ns")

    @property
    def after_call(self) -> Number:
        """Idle time from the return of these calls to the start on the GPU."""
        return self.idle - self.before_call - self.in_call

    @property
    def calls_known(self) -> bool:
        """Whether the trace tells where the gaps lie relative to the calls."""
        return all(n.value is not None for n in (self.before_call, self.in_call)) and bool(
            self.idle.value
        )

    def by(self, column: str, values: str = "idle_ns") -> list[tuple[str, float]]:
        """Return the names in a column with the sum of their `values`, the largest first."""
        sums = self.rows[self.rows[column] != ""].groupby(column)[values].sum()
        return [(str(k), float(v)) for k, v in sums.sort_values(ascending=False).items()]

    def _number(self, column: str, unit: str) -> Number:
        return Number(self.rows[column].sum(min_count=1), unit, self._refs(column))

    def _refs(self, column: str) -> tuple[Ref, ...]:
        causes = self.rows["cause"].unique() if len(self.rows) else (self.cause,)
        return tuple(Ref("idle_gaps", f"{self.stage}-{cause}", column) for cause in causes)


@dataclass(frozen=True)
class Stage:
    """A stage, or the whole capture, with its idle time; of several GPUs the mean of one."""

    name: str
    gpus: int
    wall: Number
    idle: Number
    launches: Number
    kernel_mean: Number
    gaps: pd.DataFrame

    @property
    def is_capture(self) -> bool:
        """Whether it stands for the whole capture."""
        return self.name == ALL

    @property
    def idle_share(self) -> Number:
        """Idle time over wall time."""
        return self.idle.share_of(self.wall)

    @property
    def link(self) -> Name:
        """Its name, which leads to its row."""
        return Name(self.name, Ref("stages", self.name))

    @property
    def where(self) -> Text:
        """Where a sentence about it holds."""
        words = Text("from its first to its last kernel")
        if not self.is_capture:
            words = Text("in {stage}", stage=self.link)
        if self.gpus == 1:
            return words
        return Text("{where} (mean of {n} GPUs)", where=words, n=self.gpus)

    def of_cause(self, *causes: str) -> Gaps:
        """Return the gaps of a cause, or of several by the name of the first; there may be none."""
        return Gaps(self.name, causes[0], self.gaps[self.gaps["cause"].isin(causes)])

    @property
    def causes(self) -> list[Gaps]:
        """The gaps of each cause, most idle time first."""
        sums = self.gaps.groupby("cause")["idle_ns"].sum().sort_values(ascending=False)
        return [self.of_cause(str(cause)) for cause in sums.index]

    @property
    def at_ends(self) -> Number:
        """Idle time before the first and after the last work: a gap lies between two operations."""
        total = self.idle
        for gaps in self.causes:
            total = total - gaps.idle
        return total


@once
def idle_stages(run: Run) -> list[Stage]:
    """Return the stages, or the whole capture where the program has none."""
    stages = []
    for row in stage_rows(run):
        name = text(row["stage"])
        gaps = per_gpu_gaps(run, capture=name == ALL)
        number = {
            column: Number(row[column], unit, (Ref("stages", name, column),))
            for column, unit in (
                *((column, "ns") for column in ("wall_ns", "idle_ns", "kernel_ns")),
                ("launches", "count"),
            )
        }
        stages.append(
            Stage(
                name,
                count(row["gpus"]) or 1,
                number["wall_ns"],
                number["idle_ns"],
                number["launches"],
                number["kernel_ns"].per(number["launches"], "ns"),
                gaps if name == ALL else gaps[gaps["stage"] == name],
            )
        )
    return stages
