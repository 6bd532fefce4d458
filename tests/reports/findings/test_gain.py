"""What a change saves where host and GPU wait for each other, on recorded runs and made-up gaps."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nsight_prof.parsers.cells import number, records
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.gpu_times import HOST, LAUNCHES
from nsight_prof.reports.analysis.stages import ALL, program_time
from nsight_prof.reports.findings.gain import behind_host, of_host, untraced_wall
from nsight_prof.reports.findings.gain_intervals import LEAST, measured_repairs
from nsight_prof.reports.findings.kernels.findings import kernel_findings
from nsight_prof.reports.findings.launch_cost import LAUNCH_NS, launch_cost
from nsight_prof.reports.findings.program.rules import program_findings
from nsight_prof.reports.findings.shortest_launch import QUEUE_GAP_NS
from nsight_prof.reports.verdicts.ranking import findings
from tests.reports.programs import english, of_cause, write

Recorded = Callable[[str], Run]


def test_shorter_kernels_gain_nothing_where_the_host_is_late(recorded_run_of: Recorded) -> None:
    run = recorded_run_of("h200-top-kernels")
    stages = run.launches.groupby("kernel_id", observed=True)["stage"].agg(set)
    program = program_findings(run)
    found = [*program, *kernel_findings(run, program)]
    alone = {(f.rule, *f.kernel_ids): f for f in found if f.kernel_ids and f.rule and f.gain_ns > 0}
    now = {(f.rule, *f.kernel_ids): f for f in findings(run)}
    of_decode = [ids for ids in alone if set.union(*(stages[key] for key in ids[1:])) == {"decode"}]
    of_prefill = [
        ids for ids in alone if set.union(*(stages[key] for key in ids[1:])) == {"prefill"}
    ]
    assert of_decode
    assert of_prefill
    waits = run.api_calls["name"].str.contains("Synchronize|Memcpy", na=False)
    waited = run.api_calls.loc[waits, "total_ns"].sum()
    assert waited < 1e-3 * number(program_time(run)[0].value)
    for ids in of_decode:  # the GPU waits for most of its launches there
        assert now[ids].gain_ns <= 1.001 * waited
        assert now[ids].most_ns >= alone[ids].gain_ns
        assert "only once the GPU no longer waits" in english(now[ids].verdict)
    for ids in of_prefill:
        assert now[ids].gain_ns == alone[ids].gain_ns


def test_steps_that_were_queued_are_what_launches_cost(recorded_run_of: Recorded) -> None:
    run = recorded_run_of("h200-top-kernels")
    rows = run.launches[run.launches["stage"] == "decode"].sort_values("start_ns")
    often = rows["kernel_id"].value_counts()
    once = min(often[often == 16].index)  # a kernel that comes once in each of 16 steps
    periods = np.diff(rows.loc[rows["kernel_id"] == once, "start_ns"])
    fast = periods < 1.2 * periods.min()
    assert 2 < fast.sum() < len(fast) - 2
    late = (~fast).sum() * (np.median(periods[~fast]) - np.median(periods[fast]))
    found = of_cause(run, "launch_bound")
    assert found.most_ns == pytest.approx(late, rel=0.05)
    gaps = run.idle_gaps[
        (run.idle_gaps["stage"] == "decode") & run.idle_gaps["cause"].isin((LAUNCHES, HOST))
    ]
    kept = gaps["gaps"].sum() * (QUEUE_GAP_NS + number(launch_cost(run).added.value))
    assert found.gain_ns == pytest.approx(gaps["idle_ns"].sum() - kept)
    assert not found.is_bound


def test_kernels_that_end_sooner_leave_the_host_its_time(run: Run) -> None:
    """It works while kernels run, and stands in launches where the queue is full."""
    wall = number(program_time(run)[0].value)
    kernel = next(f for f in findings(run) if f.key == "kernel")
    kernel = replace(kernel, rule="small_grid", gain_of="GPU time", gain_ns=0.8 * wall)
    run = write(run, "idle_gaps", [])
    for standing, saved in ((0.5, 0.5), (0.9, 0.8)):
        launch = {"name": "cudaLaunchKernel", "calls": 10, "total_ns": round(standing * wall),
                  "median_ns": LAUNCH_NS}  # fmt: skip
        end = launch | {"name": "cudaDeviceSynchronize", "calls": 1, "total_ns": 0}
        found = behind_host(write(run, "api_calls", [launch, end]), kernel)
        assert found.gain_ns == pytest.approx(saved * wall - (10 * LAUNCH_NS if saved < 0.8 else 0))
        # What stays of any gain is of the run: several findings save it once.
        assert (found.shared_ns == found.gain_ns) == (saved < 0.8)
        assert ("save together at most" in english(found.verdict)) == (saved < 0.8)


@pytest.mark.parametrize(("longer_us", "hides"), [(0.0, True), (1e9, False)])
def test_a_host_that_is_late_under_nsys_alone_hides_nothing(
    run: Run, longer_us: float, hides: bool
) -> None:
    capture = run.stages[run.stages["stage"] == ALL]
    capture = capture.assign(idle_ns=0.4 * capture["wall_ns"])
    run = write(run, "stages", records(capture))
    idle = number(program_time(run)[1].value)
    late = {"stage": "", "cause": HOST, "gaps": 10, "idle_ns": round(0.9 * idle)}
    launch = {"name": "cudaLaunchKernel", "calls": 1_000,
              "total_ns": round(1_000 * (LAUNCH_NS + 1e3 * longer_us))}  # fmt: skip
    run = write(write(run, "idle_gaps", [late]), "api_calls", [launch])
    (kernel, *_) = kernel_findings(run, [])
    launched = {"kernel_id": kernel.kernel_ids[0], "start_ns": 0, "duration_ns": 2_000_000,
                "device": 0, "pid": 1, "stage": ""}  # fmt: skip
    run = write(run, "launches", [launched])
    kernel = replace(kernel, rule="small_grid", gain_of="GPU time", gain_ns=1e6)
    assert (behind_host(run, kernel).gain_ns < 1e6) == hides


@pytest.mark.parametrize("late", [0, 500])
def test_idle_time_between_queued_operations_stays(run: Run, late: int) -> None:
    idle = number(program_time(run)[1].value)
    row = {"stage": "decode", "cause": "queued", "gaps": 100, "idle_ns": 1_000_000}
    run = write(run, "idle_gaps", [row])
    assert of_host(run, 10 * idle, late) == pytest.approx(idle - 1_000_000)
    assert of_host(run, 2e6, late) == pytest.approx(2e6 - late * QUEUE_GAP_NS)
    assert of_host(run, 100.0, late) == (0 if late else 100)


@pytest.mark.parametrize(
    ("calls", "longer_us", "added_ns"),
    [
        (1_000, 2, 2e6),
        (1_000, -2, 0.0),
        (1_000_000, 0.001, None),  # more than some for each launch are short ones
        (1_000, 1e9, math.inf),  # the GPU sets the pace then
    ],
)
def test_the_time_without_nsys_is_shorter_by_what_it_adds_to_calls(
    run: Run, calls: int, longer_us: float, added_ns: float | None
) -> None:
    wall, idle = (number(time.value) for time in program_time(run))
    kernels = int(run.kernels["calls"].sum())
    launch = {"name": "cudaLaunchKernel", "calls": calls,
              "total_ns": round(calls * (LAUNCH_NS + 1e3 * longer_us))}  # fmt: skip
    run = write(run, "api_calls", [launch])
    added = 3 * kernels * 1.0 if added_ns is None else min(added_ns, idle)
    assert untraced_wall(run).value == pytest.approx(wall - added)


def test_gains_lie_in_the_interval_of_what_measured_repairs_saved(
    recorded_run_of: Recorded,
) -> None:
    run = recorded_run_of("h200-top-kernels")
    whole_ns = number(program_time(run)[0].value)
    known = measured_repairs()
    checked = 0
    for finding in findings(run):
        if finding.rule.endswith("_saturated") and not finding.gain_ns > 0:
            assert np.isnan(finding.low_ns)  # nothing is promised, so that nothing is at least
        elif finding.rule and finding.gain_ns >= LEAST * whole_ns:
            factors = known.get(finding.rule, known["others"])
            assert finding.low_ns == pytest.approx(factors.low * finding.gain_ns)
            assert finding.low_ns <= finding.high_ns <= whole_ns
            labels = [english(item.label) for item in finding.evidence]
            assert any(f"{factors.programs} measured fixes" in label for label in labels)
            checked += 1
        else:
            assert np.isnan(finding.high_ns)
    assert checked
