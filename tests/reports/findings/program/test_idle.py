"""Findings about idle time of the GPU, on made-up tables whose answer is known."""

import math
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.idle import Stage
from nsight_prof.reports.analysis.stages import ALL, stage_rows, stages_note, wall_time
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.open_questions import open_questions
from nsight_prof.reports.findings.program import idle
from nsight_prof.reports.page import Number
from nsight_prof.reports.verdicts.ranking import findings
from tests.reports.programs import US, amount, english, of_cause, of_rule, where, write


def gap(cause: str, idle_ms: float, gaps: int, **more: Any) -> dict[str, Any]:
    texts = {"stage": "decode", "waited": "", "call": "", "nvtx_range": ""}
    longest = round(idle_ms * 1e6 / gaps)
    return {**texts, "cause": cause, "gaps": gaps, "idle_ns": round(idle_ms * 1e6),
            "longest_ns": longest, **more}  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "rule", "words"),
    [
        ("launches", "launch_bound", "the host launches too slowly: 500 gaps of 12 us"),
        ("host", "host_bound", "the host does something else: 500 gaps"),
        ("synchronisation", "sync_stalls", "(cudaStreamSynchronize) before it launches more"),
    ],
)
def test_idle_time_is_told_by_its_cause(run: Run, cause: str, rule: str, words: str) -> None:
    rows = [gap(cause, 6.0, 500, waited="cudaStreamSynchronize"), gap("queued", 0.1, 100)]
    found = of_cause(write(run, "idle_gaps", rows), rule)
    assert words in english(found.verdict)
    assert (found.key, found.stage) == ("idle", "decode")
    assert all((english(found.disproof), english(found.action), english(found.advice)))
    wall = wall_time(run)[0]
    # A CUDA graph leaves a microsecond of each gap; a host that is not there leaves nothing.
    kept = 0 if rule == "host_bound" else 500 * US
    assert found.gain_ns == pytest.approx(6e6 - kept)
    assert found.gain_program == pytest.approx(found.gain_ns / wall)


@pytest.mark.parametrize(("unloaded", "rule"), [(40, "remade_code"), (2, "first_use")])
def test_code_that_is_loaded_and_unloaded_again_is_no_first_use(
    run: Run, unloaded: int, rule: str
) -> None:
    calls = [{"name": "cuModuleLoadData", "calls": 40, "total_ns": 5_000_000},
             {"name": "cuModuleUnload", "calls": unloaded, "total_ns": 1_000_000}]  # fmt: skip
    gaps = [gap("host", 6.0, 40, call="cuModuleLoadData")]
    found = of_cause(write(write(run, "api_calls", calls), "idle_gaps", gaps), rule)
    assert math.isnan(found.gain_ns) == (rule == "first_use")
    assert ("40 times" in english(found.verdict)) == (rule == "remade_code")


def shown(found: Finding, metric: str) -> float:
    """Return the number of a row of the evidence."""
    (one,) = [row for row in found.evidence if english(row.label) == metric]
    return amount(one)


def with_launch_cost(run: Run, alone_us: float) -> Run:
    rows = [{"level_or_pipe": "host", "kind": "launch", "value": alone_us * 1e-6, "unit": "s",
             "case_id": "host/launch/driver|hot|normal"}]  # fmt: skip
    calls = [{"name": "cudaLaunchKernel", "calls": 300, "total_ns": 2_400_000},
             {"name": "cuLaunchKernelEx", "calls": 100, "total_ns": 1_200_000},
             {"name": "cudaMemcpyAsync", "calls": 9, "total_ns": 9_000_000}]  # fmt: skip
    return write(write(run, "measured_roofs", rows), "api_calls", calls)


@pytest.mark.parametrize(("waited", "waits", "said"), [
    ("cudaStreamSynchronize", 40, True),
    ("cudaStreamSynchronize", 19, False),  # those of the start and the end
    ("cudaEventSynchronize", 40, False),  # of work of an earlier step, perhaps
])  # fmt: skip
def test_waits_of_a_loop_come_before_the_launches_that_are_slow_for_them(
    run: Run, waited: str, waits: int, said: bool
) -> None:
    mask = gap("synchronisation", 0.1, waits, waited=waited, nvtx_range="cub::DeviceSelect::Flag")
    calls = [{"name": waited, "calls": waits, "total_ns": waits * 30 * US}]
    run = write(run, "api_calls", calls)
    found = of_cause(write(run, "idle_gaps", [gap("launches", 6.0, 500), mask]), "launch_bound")
    assert ("Again and again the GPU runs dry" in english(found.verdict)) == said
    assert ("boolean mask" in english(found.verdict)) == said
    assert english(found.action).startswith("First take synchronisations") == said
    assert "CUDA graph" in english(found.action)
    # Without its waits the host does the rest of its loop: it gains what it stood in them.
    assert found.gain_ns == pytest.approx(40 * 30 * US if said else 6e6 - 500 * US)
    assert found.choice != said


def test_waits_that_are_short_are_not_why_the_host_launches_slowly(run: Run) -> None:
    mask = gap("synchronisation", 0.1, 40, waited="cudaStreamSynchronize")
    calls = [{"name": "cudaStreamSynchronize", "calls": 40, "total_ns": 40 * 2 * US}]
    run = write(write(run, "api_calls", calls), "idle_gaps", [gap("launches", 6.0, 500), mask])
    found = of_cause(run, "launch_bound")
    assert "Again and again" not in english(found.verdict)
    assert found.choice


@pytest.mark.parametrize(
    ("waits", "to_gpu", "said"),
    [(40, 0, True), (15, 0, False), (40, 30, False)],  # a loop; its ends; those of its inputs
)
def test_short_waits_of_a_loop_are_told_before_the_launches_that_follow_from_them(
    run: Run, waits: int, to_gpu: int, said: bool
) -> None:
    calls = [{"name": "cudaStreamSynchronize", "calls": waits, "total_ns": waits * 10 * US}]
    run = write(write(run, "api_calls", calls), "idle_gaps", [gap("launches", 6.0, 500, stage="")])
    kinds = [{"kind": "host to device", "calls": to_gpu, "bytes": 8, "total_ns": 9}]
    run = write(run, "memory_operations", kinds if to_gpu else [])
    run = write(run, "stages", [{**r, "stage": ALL} for r in records(run.stages.head(1))])
    found = [f for f in findings(run) if f.key == "idle"]
    assert [f.rule for f in found] == ["sync_stalls", "launch_bound"][not said :]
    if said:
        assert found[0].gain_ns == pytest.approx(waits * 10 * US)
        assert english(found[0].title).startswith("The host waits for the GPU 40 times")


@pytest.mark.parametrize(
    ("waited", "copied", "rule"),
    [("cudaMemcpyAsync", 30, "results_on_host"), ("cudaMemcpyAsync", 9, "host_bound"),
     ("", 30, "host_bound")],
)  # fmt: skip
def test_a_host_that_works_on_results_is_told_from_one_that_prepares(
    run: Run, waited: str, copied: int, rule: str
) -> None:
    back = {"kind": "device to host", "calls": copied, "bytes": 8, "total_ns": 9}
    run = write(run, "memory_operations", [back])
    found = of_cause(write(run, "idle_gaps", [gap("host", 6.0, 30, waited=waited)]), rule)
    assert found.gain_ns == pytest.approx(6e6)
    assert (".cpu()" in english(found.verdict)) == (rule == "results_on_host")


def test_a_host_that_waits_for_an_idle_gpu_has_no_work_to_leave_out(run: Run) -> None:
    back = {"kind": "device to host", "calls": 60, "bytes": 8, "total_ns": 9}
    late = gap("host", 6.0, 30, waited="cudaMemcpy", call="cudaMemcpy")
    run = write(write(run, "memory_operations", [back]), "idle_gaps", [late])
    found = of_cause(run, "host_bound")  # nor is it in results
    assert found.gain_ns == 0
    assert found.most_ns == pytest.approx(6e6)
    assert "stands in calls that wait for the GPU" in english(found.verdict)
    work = gap("host", 5.0, 20, waited="cudaMemcpy")
    assert of_cause(write(run, "idle_gaps", [late, work]), "host_bound").gain_ns == 5e6


@pytest.mark.parametrize(("gaps", "is_framework"), [(30, True), (5, False)])
def test_long_gaps_of_a_host_that_launches_slowly_are_a_matter_of_launches(
    run: Run, gaps: int, is_framework: bool
) -> None:
    rows = [gap("launches", 4.0, 500), gap("host", 3.0, gaps)]  # of 0.1 or 0.6 ms
    run = write(run, "idle_gaps", rows)
    assert len(of_rule(run, "host_bound")) == (not is_framework)
    late, gaps_late = (7e6, 500 + gaps) if is_framework else (4e6, 500)
    found = of_cause(run, "launch_bound")
    assert shown(found, "idle time") == pytest.approx(late)
    assert found.gain_ns == pytest.approx(late - gaps_late * shown(found, "left of each gap"))
    assert found.choice


@pytest.mark.parametrize("alone_us", [4.0, 10.0])
def test_the_gain_of_waiting_for_launches_can_be_done_by_hand(run: Run, alone_us: float) -> None:
    run = write(run, "idle_gaps", [gap("launches", 6.0, 500), gap("queued", 0.1, 100)])
    found = of_cause(with_launch_cost(run, alone_us), "launch_bound")
    # 3.6 ms in 400 launches; what is slower without nsys is not added to the gaps.
    assert shown(found, "what nsys adds to a launch") == pytest.approx(
        max(0.0, 9 * US - alone_us * US)
    )
    left = shown(found, "left of each gap") + shown(found, "what nsys adds to a launch")
    by_hand = shown(found, "idle time") - shown(found, "gaps") * left
    assert found.gain_ns == shown(found, "could save") == pytest.approx(by_hand)
    wall = shown(found, "wall time of the program under nsys")
    assert found.gain_program == pytest.approx(by_hand / wall)
    assert all(where(row) or row.source for row in found.evidence)


def test_the_idle_share_of_all_causes_is_told_beside_that_of_one(run: Run) -> None:
    run = write(run, "idle_gaps", [gap("launches", 6.0, 500), gap("queued", 0.1, 100)])
    found = of_cause(run, "launch_bound")
    stage = run.stages.set_index("stage").loc["decode"]
    part = f"{100 * stage['idle_ns'] / stage['wall_ns']:.0f} %"
    assert f"bring the idle share of decode to {part}." in english(found.verdict)
    rest = "idle before the first or after the last work of the capture"
    parts = ("idle time", "idle between operations that were queued already", rest)
    assert sum(shown(found, name) for name in parts) == pytest.approx(stage["idle_ns"])


@pytest.mark.parametrize(("before", "inside", "sure"), [(4.0, 1.5, "medium"), (1.0, 4.5, "low")])
def test_what_calls_show_of_slow_launches(
    run: Run, before: float, inside: float, sure: str
) -> None:
    told = {"late_calls": 450, "before_call_ns": before * 1e6, "in_call_ns": inside * 1e6}
    found = of_cause(write(run, "idle_gaps", [gap("launches", 6.0, 500, **told)]), "launch_bound")
    assert shown(found, "gaps in which the launch call had not begun when the GPU ran dry") == 450
    assert shown(found, "idle before the launch call") == before * 1e6
    # Calls that nsys may have lengthened by as much say little.
    assert found.confidence == sure


def test_causes_of_one_stage_are_told_apart_and_ranked(run: Run) -> None:
    rows = [gap("launches", 2.0, 400), gap("host", 4.0, 3, call="cudaMalloc")]
    run = write(run, "idle_gaps", rows)
    ranked = [f.rule for f in findings(run) if f.key == "idle"]
    assert ranked == ["allocation_stalls", "launch_bound"]
    assert "cudaMalloc (100 %)" in english(of_cause(run, "allocation_stalls").verdict)


@pytest.mark.parametrize(
    ("call", "rule"),
    [("cudaFree", "allocation_stalls"), ("cuMemAlloc_v2", "allocation_stalls"),
     ("cudaMallocAsync", "host_bound"), ("cudaModuleLoad", "first_use")],
)  # fmt: skip
def test_allocations_in_the_loop_are_named(run: Run, call: str, rule: str) -> None:
    found = of_cause(write(run, "idle_gaps", [gap("host", 4.0, 9, call=call)]), rule)
    assert call in english(found.verdict)
    assert ("Allocate once" in english(found.action)) == (rule == "allocation_stalls")


def test_a_long_launch_while_the_gpu_is_idle_loads_its_kernel(run: Run) -> None:
    first = gap("host", 4.0, 3, before_call_ns=300_000, in_call_ns=3_700_000)
    found = of_cause(write(run, "idle_gaps", [first]), "first_use")
    assert "in the first launches themselves" in english(found.verdict)
    assert math.isnan(found.gain_ns)
    other = gap("host", 4.0, 3, before_call_ns=2_800_000, in_call_ns=1_200_000)
    words = english(of_cause(write(run, "idle_gaps", [other]), "host_bound").verdict)
    assert "in the launch that ends the gap (30 %) and the program's own code" in words


def test_the_range_in_which_a_busy_host_is_comes_before_the_next_one(run: Run) -> None:
    rows = [
        gap("host", 3.0, 9, host_range="read file", nvtx_range="layer *"),
        gap("host", 1.0, 9, nvtx_range="layer *"),
    ]
    words = english(of_cause(write(run, "idle_gaps", rows), "host_bound").verdict)
    assert "in NVTX range read file (75 %)." in words
    assert "launches next" not in words


def test_gaps_of_the_gpus_own_are_not_blamed_on_the_host(run: Run) -> None:
    found = of_cause(write(run, "idle_gaps", [gap("queued", 7.0, 9000)]), "idle")
    assert "100 % between operations that were queued already" in english(found.verdict)
    assert "host" not in english(found.verdict).split("Of this")[1].split(".")[0]


def test_without_causes_the_report_says_what_is_open(run: Run) -> None:
    hole = {"table": "idle_gaps", "kernel_id": "", "column": "", "reason": "no CUDA calls."}
    run = write(run, "gaps", [hole])
    assert "Why the GPU is idle is not known: no CUDA calls." in [
        english(question.text) for question in open_questions(run)
    ]


def test_stages_that_last_longer_than_the_capture_are_explained(run: Run) -> None:
    named = run.stages["stage"] != ALL
    total = float(run.stages.loc[named, "wall_ns"].sum())

    def note(capture: float) -> str:
        frame = run.stages.copy()
        frame["wall_ns"] = frame["wall_ns"].where(named, capture)
        tables.write(frame, "stages", run.directory.tables)
        return english(stages_note(load_run(run.path)))

    assert note(total) == ""
    assert note(total + 5e6) == "5.0 ms of the capture lie in none of the stages."
    assert "2.0 ms more than the capture" in note(total - 2e6)
    tables.write(run.stages[~named], "stages", run.directory.tables)
    assert stages_note(load_run(run.path)) is None


@pytest.mark.parametrize(("kernel_ns", "stages"), [(10e6, {ALL}), (5e6, {"prefill", "decode"})])
def test_ranges_of_little_gpu_time_are_no_stages(
    run: Run, kernel_ns: float, stages: set[str]
) -> None:
    frame = run.stages.copy()
    assert set(frame["stage"]) == {ALL, "prefill", "decode"}
    frame["kernel_ns"] = frame["kernel_ns"].astype(float)
    frame.loc[frame["stage"] == ALL, "kernel_ns"] = kernel_ns
    frame.loc[frame["stage"] != ALL, "kernel_ns"] = 2e6
    tables.write(frame.astype(run.stages.dtypes.to_dict()), "stages", run.directory.tables)
    assert {row["stage"] for row in stage_rows(load_run(run.path))} == stages


@pytest.mark.parametrize(("loads", "rule"), [(30, "first_use"), (9, "host_bound")])
def test_kernels_that_are_built_for_each_size_gain_nothing_known(
    run: Run, loads: int, rule: str
) -> None:
    calls = [{"name": "cuLibraryLoadData", "calls": loads, "total_ns": 9}]
    run = write(write(run, "api_calls", calls), "idle_gaps", [gap("host", 6.0, 40)])
    found = of_cause(run, rule)
    assert math.isnan(found.gain_ns) == (rule == "first_use")
    assert ("for each new size" in english(found.verdict)) == (rule == "first_use")


@pytest.mark.parametrize(("samples", "rule"), [(400, "first_use"), (90, "host_bound")])
def test_kernels_are_built_at_the_line_where_the_host_is_when_it_loads_them(
    run: Run, samples: int, rule: str
) -> None:
    """Attention of ever longer texts (cuDNN): 157 kernels, and 760 gaps at all lines."""
    calls = [{"name": "cuLibraryLoadData", "calls": 30, "total_ns": 9}]
    run = write(write(run, "api_calls", calls), "idle_gaps", [gap("host", 60.0, 80)])
    attends = {"stage": "decode", "file": "/a/model.py", "line": 62, "function": "forward"}
    rows = [
        {**attends, "activity": "other call", "call": "cuLibraryLoadData", "idle_samples": 9},
        {**attends, "activity": "program", "idle_samples": samples},
        {**attends, "activity": "program", "line": 64, "idle_samples": 100},
    ]
    run = write(run, "host_lines", [{**row, "samples": row["idle_samples"]} for row in rows])
    assert of_rule(run, rule)


@pytest.mark.parametrize(
    ("launches", "kernel_ns", "items"), [(6, 2000, True), (60, 2000, False), (6, 9000, False)]
)
def test_a_loop_goes_over_items_where_few_tiny_kernels_follow_each_wait(
    run: Run, launches: int, kernel_ns: float, items: bool
) -> None:
    waits, call = 50, "cudaStreamSynchronize"
    rows = [
        {"cause": "launches", "waited": "", "gaps": waits * launches, "idle_ns": 80e6},
        {"cause": "synchronisation", "waited": call, "gaps": waits, "idle_ns": 10e6},
    ]
    times = Number(100e6, "ns"), Number(90e6, "ns"), Number(waits * launches, "count")
    stage = Stage(ALL, 1, *times, Number(kernel_ns, "ns"), pd.DataFrame(rows))
    assert idle._goes_over_items(run, stage, [call], Number(10e6, "ns")) is items


@pytest.mark.parametrize(
    ("source", "items"),
    [
        ("along[along > 4] -= 8", False),
        ("scores[~allowed] = -1e9", False),
        ("kept = scores[scores > 4]", True),
        ("done[step] = value.item()", True),
    ],
)
def test_what_is_written_through_a_mask_is_no_loop_over_items(
    run: Run, source: str, items: bool
) -> None:
    waits, call = 50, "cudaStreamSynchronize"
    at = {"stage": "decode", "file": "/a/dust.py", "line": 25, "function": "bound", "work": ""}
    row = {**at, "source": source, "activity": "waiting", "call": call, "samples": 9,
           "idle_samples": 9, "time_ns": 9e6, "idle_ns": 9e6}  # fmt: skip
    run = write(run, "host_lines", [row])
    rows = [
        {"cause": "launches", "waited": "", "gaps": 300, "idle_ns": 80e6},
        {"cause": "synchronisation", "waited": call, "gaps": waits, "idle_ns": 10e6},
    ]
    times = Number(100e6, "ns"), Number(90e6, "ns"), Number(300, "count")
    stage = Stage("decode", 1, *times, Number(2000, "ns"), pd.DataFrame(rows))
    assert idle._goes_over_items(run, stage, [call], Number(10e6, "ns")) == items


def test_a_pool_that_gives_memory_back_at_each_wait_is_told(run: Run) -> None:
    gaps = gap("host", 6.0, 30, call="cudaStreamSynchronize", waited="cudaMemcpyAsync")
    calls = [{"name": "cudaMallocAsync", "calls": 90, "total_ns": 1e6}]
    found = findings(write(write(run, "idle_gaps", [gaps]), "api_calls", calls))
    assert any("release threshold" in english(f.verdict) for f in found)
    assert {"pool_release", "allocation_stalls"} & {f.rule for f in found} == {"pool_release"}
