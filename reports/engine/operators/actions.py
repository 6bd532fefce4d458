"""What the tables of kernels say of the same time as a finding of the operator view, and why not.

The operator view holds a stage to the least that its work takes; the table of what each kernel
could save holds a launch to its own roof at its own clock, as far as its cause reaches. Both are
upper limits, of different things: a reader who sees both needs the numbers beside each other.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from nsight_prof.parsers.cells import count, number, records, text
from nsight_prof.reports.bench.models import Source
from nsight_prof.reports.findings import findings
from nsight_prof.reports.formats import counted, duration, listed, share
from nsight_prof.reports.kernel_rows import kernel_rows
from nsight_prof.reports.load import Run
from nsight_prof.reports.places import SAVED
from nsight_prof.reports.profiled import kernel_time

NAMED = 4
"""Kernels that a sentence names."""


@dataclass(frozen=True)
class Counterpart:
    """What kernels of a stage could save by themselves, in the whole trace.

    `numbers` are those of the kernels on the page, `saved_ns` their sum in this stage, NaN where
    none was judged; `told` are those of them that a finding of the report is about. `runs` is how
    often the stage ran, `gpu_ns` the time of all kernels of the trace.
    """

    numbers: tuple[int, ...]
    told: tuple[int, ...]
    saved_ns: float
    runs: int
    gpu_ns: float

    def whole(self, lost_ns: float) -> str:
        """Return time of a run as that of all runs: "31 runs: 12.7 ms, 4.0 % of the GPU time"."""
        every = lost_ns * self.runs
        runs = counted(self.runs, "run")
        return f"{runs}: {duration(every)}, {share(every / self.gpu_ns)} of the GPU time"

    def beside(self) -> str:
        """Return what the table of kernels has of it; empty where it judged none."""
        if not self.numbers or not math.isfinite(self.saved_ns):
            return ""
        who = _kernels(self.numbers)
        without = [number for number in self.numbers if number not in self.told]
        todo = ""
        if len(without) == len(self.numbers):
            todo = "; What to do lists none of them"
        elif without:
            todo = f"; What to do does not list {_kernels(without)}"
        return (
            f"The table of what each kernel could save has {duration(self.saved_ns)} for {who}"
            f"{todo}. That table holds one launch to its own roof at its own clock, as far as its "
            "cause reaches"
        )

    def places(self) -> tuple[Source, ...]:
        """Return the rows of these kernels."""
        return tuple(
            Source(f"could save, kernel {number}", f"{SAVED}-{number}") for number in self.numbers
        )


def _kernels(numbers: Collection[int]) -> str:
    shown = [str(number) for number in numbers][:NAMED]
    more = len(numbers) - len(shown)
    who = f"{', '.join(shown)} and {more} more" if more else listed(shown)
    return f"kernel{'s' if len(numbers) > 1 else ''} {who}"


@dataclass(frozen=True)
class Actions:
    """The judged kernels of a run: number, part of their time that they could save; who is told."""

    run: Run
    gains: Mapping[str, tuple[int, float]]
    told: frozenset[str]

    def of(self, stage: str, kernel_ids: Collection[str]) -> Counterpart:
        """Return what these kernels could save in a stage; the whole trace for ""."""
        rows = self.run.stage_kernels
        mine = [r for r in records(rows[rows["stage"] == stage]) if r["kernel_id"] in kernel_ids]
        judged = [row for row in mine if text(row["kernel_id"]) in self.gains]
        ours = sorted({(self.gains[key][0], key) for key in (text(r["kernel_id"]) for r in judged)})
        saved = sum(number(r["total_ns"]) * self.gains[text(r["kernel_id"])][1] for r in judged)
        ran = {text(row["stage"]): count(row["instances"]) for row in records(self.run.stages)}
        return Counterpart(
            numbers=tuple(place for place, _ in ours),
            told=tuple(place for place, key in ours if key in self.told),
            saved_ns=saved if judged else math.nan,
            runs=ran.get(stage) or 1,
            gpu_ns=kernel_time(self.run),
        )


def actions(run: Run) -> Actions:
    """Return what the report says of the kernels of a run."""
    gains = {
        row.kernel_id: (row.number, row.gain) for row in kernel_rows(run) if row.gain is not None
    }
    told = {key for found in findings(run) if found.key == "kernel" for key in found.kernel_ids}
    return Actions(run, gains, frozenset(told))
