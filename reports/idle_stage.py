"""Idle time of a stage by cause, and what a launch costs the host, as findings need them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.reports.analysis.gpu_times import per_gpu_gaps
from nsight_prof.reports.analysis.stages import ALL
from nsight_prof.reports.evidence import Evidence
from nsight_prof.reports.load import Run

CAUSES = {
    "launches": "is waiting for launches",
    "host": "while the host does something else",
    "synchronisation": "after the host waited for the GPU",
    "queued": "between operations that were queued already",
}
LAUNCH = ("host", "launch")
"""Level and kind of the measured cost of a launch, in table `measured_roofs`."""


@dataclass(frozen=True)
class Stage:
    """A stage, or the whole capture, with its idle time by cause; times in ns."""

    row: Row
    gaps: pd.DataFrame
    program_wall: float
    program_idle: float

    @property
    def name(self) -> str:
        """Its name, "(all)" for the whole capture."""
        return text(self.row["stage"])

    @property
    def whole(self) -> bool:
        """Whether it stands for the whole capture."""
        return self.name == ALL

    @property
    def where(self) -> str:
        """Where this is, to follow "of the time"."""
        where = "from its first to its last kernel" if self.whole else f"in {self.name}"
        return f"{where} (mean of {self.gpus} GPUs)" if self.gpus > 1 else where

    @property
    def gpus(self) -> int:
        """Of how many GPUs its wall and idle time and its gaps are the mean."""
        return int(number(self.row["gpus"]))

    @property
    def wall(self) -> float:
        """Wall time."""
        return number(self.row["wall_ns"])

    @property
    def idle(self) -> float:
        """Idle time of all causes."""
        return number(self.row["idle_ns"])

    @property
    def kernel_mean(self) -> float:
        """Mean duration of its kernels; NaN without launches."""
        launches = number(self.row["launches"])
        return number(self.row["kernel_ns"]) / launches if launches > 0 else math.nan

    def of_cause(self, cause: str) -> pd.DataFrame:
        """Return the rows of table `idle_gaps` of a cause."""
        return self.gaps[self.gaps["cause"] == cause]

    def others(self, cause: str) -> list[Evidence]:
        """Return the idle time of each other cause, and what lies before and after all gaps.

        A gap lies between two operations of the GPU; a range that begins before the first of the
        capture, or ends after the last, is idle there, too.
        """
        sums = self.gaps.groupby("cause")["idle_ns"].sum().sort_values(ascending=False)
        found = [
            Evidence(f"idle {CAUSES[str(key)].removeprefix('is ')}", float(value), "ns", "", "nsys",
                     ("idle_gaps.idle_ns",))
            for key, value in sums.items()
            if str(key) in CAUSES and key != cause and value > 0
        ]  # fmt: skip
        ends = self.idle - number(sums.sum())
        if ends > 0 and len(sums):
            found.append(
                Evidence("idle before the first or after the last work of the capture", ends, "ns",
                         "", "nsys", ("stages.idle_ns", "idle_gaps.idle_ns"))
            )  # fmt: skip
        return found


def gaps_of(run: Run, row: Row) -> pd.DataFrame:
    """Return the gaps of a stage, of the whole capture all; see `per_gpu_gaps`."""
    stage = text(row["stage"])
    gaps = per_gpu_gaps(run, whole=stage == ALL)
    return gaps if stage == ALL else gaps[gaps["stage"] == stage]


@dataclass(frozen=True)
class LaunchCost:
    """Host time of a launch in ns: the mean call under nsys, and one without; NaN is unknown.

    `case` is the measurement of the second, as the roofline target names it, with its run.
    """

    traced: float
    alone: float
    case: str

    @property
    def added(self) -> float:
        """What nsys adds to a launch; 0 where no launch was measured without it."""
        return max(0.0, self.traced - self.alone) if self.traced > 0 and self.alone > 0 else 0.0

    def evidence(self) -> list[Evidence]:
        """Return both, and their difference, as far as they are known."""
        calls = ("api_calls.total_ns", "api_calls.calls")
        found = []
        if self.traced > 0:
            found.append(
                Evidence("launch call under nsys, mean of the capture", self.traced, "ns", "",
                         "nsys: calls named *LaunchKernel*", calls)
            )  # fmt: skip
        if self.alone > 0:
            found += [
                Evidence("launch call without a profiler", self.alone, "ns", "",
                         self.case,
                         ("measured_roofs.value",)),
                Evidence("what nsys adds to a launch", self.added, "ns", "",
                         "the first less the second, at least 0", (*calls, "measured_roofs.value")),
            ]  # fmt: skip
        return found


def launch_cost(run: Run) -> LaunchCost:
    """Return what a launch costs the host; the least that was measured without a profiler."""
    calls = run.api_calls[run.api_calls["name"].str.contains("LaunchKernel", na=False)]
    often, spent = number(calls["calls"].sum()), number(calls["total_ns"].sum())
    roofs = run.measured_roofs
    ours = (roofs["level_or_pipe"] == LAUNCH[0]) & (roofs["kind"] == LAUNCH[1])
    alone = records(roofs[ours].sort_values("value"))
    return LaunchCost(
        spent / often if often else math.nan,
        1e9 * number(alone[0]["value"]) if alone else math.nan,
        f"{text(alone[0]['case_id']).split('|')[0]}, {_measured_by(run)}" if alone else "",
    )


def _measured_by(run: Run) -> str:
    """Return which run measured the roofs, as their details say it."""
    ours = run.roofs.loc[run.roofs["source"] == "measured", "detail"].dropna().astype(str)
    said = [found.group() for d in ours if (found := re.search(r"measured \S+ by run [^;]+", d))]
    return said[0] if said else "measured by this run"


@dataclass(frozen=True)
class CallTimes:
    """Where the gaps of a cause lie beside the call that ended them; NaN is unknown.

    `late` gaps whose call began after the GPU had run dry; ns before, in and after the calls.
    """

    gaps: float
    late: float
    before: float
    inside: float
    after: float

    @property
    def known(self) -> bool:
        """Whether the trace tells."""
        return self.before + self.inside + self.after > 0

    def part(self, value: float) -> float:
        """Return a time as part of all of them."""
        return value / (self.before + self.inside + self.after)

    def evidence(self) -> list[Evidence]:
        """Return the rows; empty where the trace does not tell."""
        if not self.known:
            return []
        places = {name: f"idle_gaps.{name}" for name in
                  ("late_calls", "before_call_ns", "in_call_ns", "idle_ns")}  # fmt: skip
        ends = (places["idle_ns"], places["before_call_ns"], places["in_call_ns"])
        return [
            Evidence("gaps in which the launch call had not begun when the GPU ran dry", self.late,
                     "", "", "nsys", (places["late_calls"],)),
            Evidence("idle before the launch call", self.before, "ns", "", "nsys", ends[1:2]),
            Evidence("idle in the launch call", self.inside, "ns", "", "nsys", ends[2:]),
            Evidence("idle from its return to the start on the GPU", self.after, "ns", "", "nsys",
                     ends),
        ]  # fmt: skip


def call_times(rows: pd.DataFrame) -> CallTimes:
    """Return where the gaps of rows of table `idle_gaps` lie beside the calls."""
    late, before, inside = (
        number(rows[name].sum(min_count=1)) for name in
        ("late_calls", "before_call_ns", "in_call_ns")
    )  # fmt: skip
    after = number(rows["idle_ns"].sum()) - before - inside
    return CallTimes(number(rows["gaps"].sum()), late, before, inside, after)
