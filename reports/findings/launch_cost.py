"""What a launch costs the host, and how much of it nsys adds."""

from __future__ import annotations

from dataclasses import dataclass

from nsight_prof.parsers.cells import number, records, text
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.roofs.file import ROOFS_FILE, read_roofs
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.page import Number, Ref, Text, Verbatim

LAUNCH_NS = 3_500.0
"""What a launch costs the host without nsys, where none was measured: 2.7 to 5.5 us by process on
hosts of H100 and H200."""
WAITS_FROM = 3.0
"""Mean over median of launch calls, from which on some load kernels or wait for a full queue: the
median is then what a launch takes. 1.0 to 2.3 in recorded runs whose calls do neither."""


@dataclass(frozen=True)
class LaunchCost:
    """Host time of a launch: the mean or median call under nsys, and one without a profiler.

    `source` is the measurement of the second: its case and its run.
    """

    traced: Number
    untraced: Number
    source: Text
    is_median: bool = False

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
    traced, is_median = total.per(often, "ns"), False
    for row in records(calls.nlargest(1, "calls")):
        median = Number(row["median_ns"], "ns", (Ref("api_calls", row["name"], "median_ns"),))
        if number(traced.value) > WAITS_FROM * number(median.value):
            traced, is_median = median, True
    roofs = run.measured_roofs
    launches = roofs[(roofs["level_or_pipe"] == "host") & (roofs["kind"] == "launch")]
    fastest = next(iter(records(launches.sort_values("value"))), None)
    if fastest is None:
        return LaunchCost(traced, Number(None, "ns"), Text(""), is_median)
    case = text(fastest["case_id"])
    untraced = Number(
        1e9 * fastest["value"],
        "ns",
        (Ref("measured_roofs", "host-launch", "value"),),
        low=1e9 * number(fastest["low"]),
        high=1e9 * number(fastest["high"]),
    )
    return LaunchCost(traced, untraced, _measured_by(run, case), is_median)


def added_to_call(run: Run) -> float:
    """Return the ns that nsys adds to a launch, and about as much to each other call of CUDA."""
    cost = launch_cost(run)
    if cost.traced.value is None or cost.untraced.value is not None:
        return number(cost.added.value)
    return max(0.0, cost.traced.value - LAUNCH_NS)


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
