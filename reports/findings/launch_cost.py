"""What a launch costs the host, and how much of it nsys adds."""

from __future__ import annotations

from dataclasses import dataclass

from nsight_prof.parsers.cells import number, records, text
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.roofs.file import ROOFS_FILE, read_roofs
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.gpu_times import (
    HOST,
    LAUNCHES,
    SYNCHRONISATION,
    gpu_count,
    per_gpu_gaps,
)
from nsight_prof.reports.analysis.stages import program_time
from nsight_prof.reports.page import Number, Ref, Text, Verbatim

LAUNCH_NS = 3_500.0
"""What a launch costs the host without nsys, where none was measured: 2.7 to 5.5 us by process on
hosts of H100 and H200."""


@dataclass(frozen=True)
class LaunchCost:
    """Host time of a launch: the mean call under nsys, and one without a profiler.

    `source` is the measurement of the second: its case and its run.
    """

    traced: Number
    untraced: Number
    source: Text

    @property
    def added(self) -> Number:
        """What nsys adds to a launch; 0 where no launch was measured without it."""
        difference = self.traced - self.untraced
        return Number(max(0.0, difference.value or 0.0), "ns", difference.refs)


@once
def launch_cost(run: Run) -> LaunchCost:
    """Return what a launch costs the host; the fastest that was measured without a profiler."""
    calls = run.api_calls[run.api_calls["name"].str.contains("LaunchKernel", na=False)]
    columns = (("total_ns", "ns"), ("calls", "count"))
    total, often = (
        Number(calls[column].sum(), unit, (Ref("api_calls", "", column),))
        for column, unit in columns
    )
    roofs = run.measured_roofs
    launches = roofs[(roofs["level_or_pipe"] == "host") & (roofs["kind"] == "launch")]
    fastest = next(iter(records(launches.sort_values("value"))), None)
    if fastest is None:
        return LaunchCost(total.per(often, "ns"), Number(None, "ns"), Text(""))
    case = text(fastest["case_id"])
    untraced = Number(
        1e9 * fastest["value"],
        "ns",
        (Ref("measured_roofs", "host-launch", "value"),),
        low=1e9 * number(fastest["low"]),
        high=1e9 * number(fastest["high"]),
    )
    return LaunchCost(total.per(often, "ns"), untraced, _measured_by(run, case))


def added_to_call(run: Run) -> float:
    """Return the ns that nsys adds to a launch, and about as much to each other call of CUDA."""
    cost = launch_cost(run)
    if cost.traced.value is None or cost.untraced.value is not None:
        return number(cost.added.value)
    return max(0.0, cost.traced.value - LAUNCH_NS)


@once
def untraced_wall(run: Run) -> Number:
    """Return about what the program takes without nsys, which lengthens calls of CUDA: as much as
    those before which the GPU waits for the host, at most the time in which it does.

    Of 49 recorded programs whose GPU idles for 30 % and more, the wall time under nsys was 1.52
    times the one without it (median), and 1.23 times what this returns.
    """
    gaps, wall = per_gpu_gaps(run, capture=True), program_time(run)[0]
    late = gaps[gaps["cause"].isin((LAUNCHES, HOST, SYNCHRONISATION))]
    part = min(1.0, late["gaps"].sum() * gpu_count(run) / max(1.0, run.kernels["calls"].sum()))
    added = part * run.api_calls["calls"].sum() / gpu_count(run) * added_to_call(run)
    refs = (*wall.refs, Ref("api_calls", "", "calls"))
    return Number(number(wall.value) - min(added, late["idle_ns"].sum()), "ns", refs)


def _measured_by(run: Run, case: str) -> Text:
    """Return which case of which run measured the roofs."""
    name = Verbatim(case.split("|")[0])
    try:
        file = read_roofs(run.path / ROOFS_FILE)
    except (OSError, ProfError):
        return Text("{case}, measured by this run", case=name)
    if not file.run_id or file.run_id == run.manifest.run_id:
        return Text("{case}, measured by this run", case=name)
    return Text(
        "{case}, measured {date} by run {run}", case=name, date=file.measured, run=file.run_id
    )


def lengthened(run: Run) -> Number | None:
    """Return the idle time in ns that nsys adds: what late launches take longer under it.

    Its ends are those of the launch without nsys, which differs by process. None where no launch
    was timed without it.
    """
    cost, gaps = launch_cost(run), per_gpu_gaps(run, capture=True)
    if cost.untraced.value is None or cost.traced.value is None:
        return None
    late = gaps[gaps["cause"] == LAUNCHES]
    idle, gaps_late = float(late["idle_ns"].sum()), float(late["gaps"].sum())

    def added(untraced: float | None) -> float | None:
        if untraced is None:
            return None
        return min(idle, gaps_late * max(0.0, number(cost.traced.value) - untraced))

    alone = cost.untraced
    return Number(
        added(alone.value),
        "ns",
        (Ref("idle_gaps", "", "gaps"), *cost.added.refs),
        low=added(alone.high),
        high=added(alone.low),
    )
