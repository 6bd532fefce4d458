"""Findings about what the host is in while the GPU is idle, on made-up samples of its stacks."""

import math
from typing import Any

import numpy as np
import pytest

from nsight_prof.parsers.cells import records
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.program import host_work
from nsight_prof.reports.verdicts.ranking import findings
from tests.reports.programs import amount, english, kernels, of_cause, of_rule, write

MS = 1_000_000


def line(work: str, samples: int, **more: Any) -> dict[str, Any]:
    """Samples of 0.1 ms each, all without GPU work."""
    doing = "allocating" if work == "emptying the cache" else "program"
    place = {"activity": doing, "file": "/a/train.py", "line": 9, "function": "step"}
    times = {"samples": samples, "time_ns": samples * MS / 10}
    idle = {"idle_samples": samples, "idle_ns": samples * MS / 10}
    return {"stage": "decode", "work": work, **place, **times, **idle, **more}


def waiting(run: Run, cause: str, longest_ms: float = 0.1) -> Run:
    gap = {"stage": "decode", "cause": cause, "waited": "", "call": "", "nvtx_range": "",
           "gaps": 500, "idle_ns": 6 * MS, "longest_ns": int(longest_ms * MS)}  # fmt: skip
    return write(run, "idle_gaps", [gap])


@pytest.mark.parametrize(
    ("work", "rule", "action"),
    [
        ("updating one by one", "optimizer_loop", "fused=True"),
        ("printing", "tensor_prints", "Print less often"),
        ("compiling", "compilation", "mark_dynamic"),
        ("loading data", "data_loading", "num_workers"),
        ("emptying the cache", "allocation_stalls", "empty_cache"),
        ("collecting garbage", "garbage_collection", "gc.freeze()"),
        ("computing again", "recomputation", "Checkpoint fewer layers"),
        ("tuning", "kernel_tuning", "triton.autotune"),
        ("sleeping", "sleeps", "queue.get()"),
        ("files", "file_access", "pinned memory"),
        ("copying networks", "network_copies", "_foreach_copy_"),
        ("noting stacks", "anomaly_detection", "set_detect_anomaly(False)"),
        ("logging", "logging", "Log less often"),
        ("capturing graphs", "graph_captures", "Capture once"),
        ("tensors of the host", "tensors_made_on_host", "device="),
        ("computing on the host", "cpu_libraries", "on the GPU"),
        ("watching operations", "dispatch_modes", "FlopCounterMode"),
        ("memory statistics", "memory_statistics", "max_memory_allocated"),
        ("profiling", "profiling", "torch.profiler.schedule"),
        ("checking arguments", "argument_checks", "validate_args=False"),
    ],
)
def test_what_the_host_does_is_named_before_the_launches_that_wait_for_it(
    run: Run, work: str, rule: str, action: str
) -> None:
    run = write(waiting(run, "launches"), "host_lines", [line(work, 20), line("", 40)])
    first, second = [f for f in findings(run) if f.key == "idle"]
    assert (first.rule, second.rule) == (rule, "launch_bound")
    assert first.gain_ns == pytest.approx(2 * MS)
    assert action in english(first.action)
    assert "train.py:9" in english(first.verdict)


@pytest.mark.parametrize(("samples", "first"), [(20, "host_bound"), (40, "file_access")])
def test_work_of_the_host_comes_first_where_it_takes_half_of_what_the_gpu_waits(
    run: Run, samples: int, first: str
) -> None:
    rows = [line("files", samples), line("", 60 - samples)]
    run = write(waiting(run, "host", longest_ms=3), "host_lines", rows)
    run = write(run, "idle_gaps", records(run.idle_gaps.assign(gaps=6)))  # of 1 ms
    assert next(f.rule for f in findings(run) if f.key == "idle") == first


@pytest.mark.parametrize(("calls", "told"), [(7, True), (1, False)])
def test_code_that_is_loaded_behind_a_queue_is_told_without_a_gain(
    run: Run, calls: int, told: bool
) -> None:
    busy = {"idle_samples": 0, "idle_ns": 0}
    rows = [line("", 200, call="cuModuleLoadData", activity="other call", **busy),
            line("", 100, **busy)]  # fmt: skip
    run = write(run, "host_lines", rows)
    run = write(run, "api_calls", [{"name": "cuModuleLoadData", "calls": calls, "total_ns": 1}])
    found = [f for f in findings(run) if f.rule == "compilation"]
    assert len(found) == told
    assert all(math.isnan(f.gain_ns) for f in found)
    assert all("train.py:9, which takes 30 ms" in english(f.verdict) for f in found)


def test_anomaly_detection_takes_its_time_where_gradients_are_checked_too(run: Run) -> None:
    inner = "/v/site-packages/torch/autograd/graph.py:869 _engine_run_backward"
    checks = line("", 40, line=11, inner=inner)
    run = write(waiting(run, "launches"), "host_lines", [line("noting stacks", 15), checks])
    (found,) = [f for f in findings(run) if f.rule == "anomaly_detection"]
    assert found.gain_ns == pytest.approx(5.5 * MS)
    assert "train.py:11" in english(found.verdict)


def test_stacks_that_an_import_notes_make_no_backward_pass_anomaly_detection(run: Run) -> None:
    inner = "/v/site-packages/torch/autograd/graph.py:869 _engine_run_backward"
    rows = [line("noting stacks", 4), line("", 40, line=11, inner=inner)]
    assert not of_rule(write(waiting(run, "launches"), "host_lines", rows), "anomaly_detection")


@pytest.mark.parametrize(("samples", "times"), [(9, 1.0), (20, 0.01)])
def test_few_samples_and_little_time_tell_nothing(run: Run, samples: int, times: float) -> None:
    rows = [line("printing", samples, idle_ns=samples * MS / 10 * times)]
    run = write(waiting(run, "launches"), "host_lines", rows)
    assert not of_rule(run, "tensor_prints")


@pytest.mark.parametrize(("samples", "others"), [(55, set()), (40, {"host_bound"})])
def test_nothing_else_is_told_of_gaps_that_are_explained(
    run: Run, samples: int, others: set[str]
) -> None:
    rows = [line("loading data", samples), line("", 75 - samples, line=12)]
    run = write(waiting(run, "host"), "host_lines", rows)
    assert {f.rule for f in findings(run) if f.key == "idle"} == {"data_loading"} | others


@pytest.mark.parametrize(("longest", "again"), [(1.0, True), (4.0, False)])
def test_what_is_compiled_once_gains_nothing(run: Run, longest: float, again: bool) -> None:
    run = write(waiting(run, "host", longest), "host_lines", [line("compiling", 60)])
    found = of_cause(run, "compilation")
    assert (found.gain_ns > 0) == again
    assert ("comes once" in english(found.verdict)) != again


@pytest.mark.parametrize(("lasting", "gain"), [(0.2, None), (0.7, 0.7)])
def test_what_the_host_does_at_the_start_of_a_capture_gains_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, lasting: float, gain: float | None
) -> None:
    # Of 6 ms of work in idle time, at most `lasting` is not at the start.
    after = lasting * 6 * MS
    monkeypatch.setattr(host_work, "_at_start", lambda _run, stage: stage.idle.value - after)
    run = write(waiting(run, "host"), "host_lines", [line("printing", 60)])
    found = of_cause(run, "tensor_prints")
    assert found.gain_ns == pytest.approx(math.nan if gain is None else after, nan_ok=True)
    assert ("before all kernels that repeat" in english(found.verdict)) == (gain is None)


def test_workers_of_a_loader_start_at_the_start_of_a_capture(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(waiting(run, "host"), "host_lines", [line("loading data", 60)])
    gains = []
    for start in (0, 2 * MS, 90 * MS):
        monkeypatch.setattr(host_work, "_at_start", lambda _run, _stage, start=start: start)
        found = of_cause(run, "data_loading")
        gains.append(found.gain_ns)
    assert gains[0] > 2 * MS
    assert gains[1] <= gains[0]
    assert np.nan_to_num(gains[2]) == 0


@pytest.mark.parametrize("timed", [40, 2])
def test_convolutions_search_where_they_wait_for_events(run: Run, timed: int) -> None:
    run = write(waiting(run, "host"), "host_lines", [line("convolving", 60)])
    calls = [{"name": "cudaEventSynchronize", "calls": timed, "total_ns": 10}]
    run = write(run, "api_calls", calls)
    rules = {f.rule for f in findings(run) if f.key == "idle"}
    assert rules == ({"convolution_search"} if timed == 40 else {"host_bound"})


def test_all_that_the_host_does_less_shortens_a_loop_that_waits_for_it(run: Run) -> None:
    rows = [line("updating one by one", 20), line("updating one by one", 30, idle_samples=0,
                                                  idle_ns=0)]  # fmt: skip
    run = write(waiting(run, "launches"), "host_lines", rows)
    found = of_cause(run, "optimizer_loop")
    assert found.gain_ns == pytest.approx(5 * MS)


def test_where_few_samples_were_taken_each_stands_for_more(run: Run) -> None:
    """A library that keeps the lock of Python lets nobody take any."""
    run = waiting(run, "host")
    wall = run.stages.loc[run.stages["stage"] == "decode", "wall_ns"].iloc[0]
    works = [("loading data", 0.45), ("", 0.15)]
    rows = [
        line(work, 30, time_ns=part * wall, line=9 + at) for at, (work, part) in enumerate(works)
    ]
    (found,) = [f for f in findings(write(run, "host_lines", rows)) if f.rule == "data_loading"]
    times = [amount(row) for row in found.evidence if "of the host in it" in english(row.label)]
    assert times == [pytest.approx(0.75 * wall)]


@pytest.mark.parametrize("groups", [1, 12])
def test_an_optimizer_of_one_group_is_not_said_to_update_tensor_by_tensor(
    run: Run, groups: int
) -> None:
    name = "void at::native::multi_tensor_apply_kernel<FusedAdam<float>>(T1, T2)"
    of_many, other = run.kernels["short_name"].unique()[:2]
    run = kernels(run, {of_many: {"name": name, "calls": 100_000}})
    ids = run.kernels.groupby("short_name")["kernel_id"].first()
    order = ([ids[other]] * 3 + [ids[of_many]] * groups) * 10
    run = write(run, "launches", [
        {"kernel_id": key, "index": at, "start_ns": 20_000 * at, "duration_ns": 10_000,
         "device": 0, "pid": 1, "context": 1, "stream": 7, "stage": "decode"}
        for at, key in enumerate(order)
    ])  # fmt: skip
    inner = "/site-packages/torch/optim/adam.py:300 _multi_tensor_adam"
    run = write(waiting(run, "launches"), "host_lines", [line("", 50, inner=inner)])
    found = of_rule(run, "optimizer_loop")
    assert len(found) == (groups > 1)


def threads(*lines: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"thread": 7, "file": "/a/watch.py", "line": number, "function": "watch",
             "inner": "", "callers": "", "samples": samples, "time_ns": samples * MS / 10}
            for number, samples in lines]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ([(3, 30), (4, 20)], "interpreter_lock"),
        ([(3, 50)], "host_bound"),  # it waits there
        ([(3, 9), (4, 8)], "host_bound"),  # it is there for a third of the time only
    ],
)
def test_a_thread_that_runs_beside_holds_the_lock(
    run: Run, lines: list[tuple[int, int]], rule: str
) -> None:
    run = write(waiting(run, "host"), "host_lines", [line("", 55)])
    run = write(run, "thread_lines", threads(*lines))
    (found,) = [f for f in findings(run) if f.key == "idle"]
    assert found.rule == rule
    assert ("watch.py:3" in english(found.verdict)) == (rule == "interpreter_lock")


@pytest.mark.parametrize(
    ("inner", "rule"),
    [
        (("/torch/a.py:1 f", "/torch/b.py:2 g", "/torch/c.py:3 h"), "interpreter_lock"),
        (("", "", ""), "host_bound"),  # the host works, and the other thread may wait
    ],
)
def test_a_loop_on_one_line_holds_the_lock_of_a_thread_that_is_held_up_anywhere(
    run: Run, inner: tuple[str, ...], rule: str
) -> None:
    rows = [line("", 20, inner=place, line=9 + at) for at, place in enumerate(inner)]
    run = write(waiting(run, "host"), "host_lines", rows)
    run = write(run, "thread_lines", threads((3, 60)))
    (found,) = [f for f in findings(run) if f.key == "idle"]
    assert found.rule == rule


def test_a_thread_of_a_library_that_waits_at_one_line_holds_no_lock(run: Run) -> None:
    places = ("/torch/a.py:1 f", "/torch/b.py:2 g", "/torch/c.py:3 h")
    rows = [line("", 20, inner=place, line=9 + at) for at, place in enumerate(places)]
    run = write(waiting(run, "host"), "host_lines", rows)
    feeder = [{**row, "file": "/usr/lib/python3.12/threading.py"} for row in threads((355, 60))]
    (found,) = [f for f in findings(write(run, "thread_lines", feeder)) if f.key == "idle"]
    assert found.rule == "host_bound"


def test_stacks_without_code_of_the_program_are_not_named(run: Run) -> None:
    library = "/usr/lib/python3.12/site-packages/torch/nn/functional.py"
    rows = [line("", 40, file=library), line("", 15)]
    run = write(waiting(run, "launches"), "host_lines", rows)
    (found,) = [f for f in findings(run) if f.key == "idle"]
    assert "train.py:9" in english(found.verdict)
    assert "functional.py" not in english(found.verdict)


def test_who_waits_for_the_data_loader_stands_before_the_line_that_loads(run: Run) -> None:
    asked = line("loading data", 55, line=22, callers="/a/train.py:53 run < /a/train.py:60 main")
    run = write(waiting(run, "host"), "host_lines", [asked])
    (found,) = [f for f in findings(run) if f.rule == "data_loading"]
    words = english(found.verdict)
    assert words.index("train.py:53 in run") < words.index("train.py:22 in step")


def test_time_that_no_line_has_most_of_is_told_by_the_line_of_the_loop(run: Run) -> None:
    around = "/a/train.py:52 run < /a/train.py:60 main"
    within = [line("", 8, line=17 + n, callers=around) for n in range(5)]
    rows = [*within, line("", 9, line=51, function="run", callers="/a/train.py:60 main")]
    run = write(waiting(run, "host"), "host_lines", rows)
    (found,) = [f for f in findings(run) if f.key == "idle"]
    words = english(found.verdict)
    assert words.index("train.py:52 in run") < words.index("train.py:17 in step")


@pytest.mark.parametrize(("function", "copied"), [("step", 3.0), ("other", 0.0)])
def test_results_that_are_worked_on_where_they_are_copied_need_no_copy(
    run: Run, function: str, copied: float
) -> None:
    back = {"kind": "device to host", "calls": 40, "bytes": 4e8, "total_ns": 3 * MS}
    rows = [line("computing on the host", 20),
            line("", 30, line=8, activity="copying", call="cudaMemcpyAsync", function=function,
                 idle_samples=0)]  # fmt: skip
    run = write(write(waiting(run, "host"), "memory_operations", [back]), "host_lines", rows)
    (found,) = [f for f in findings(run) if f.rule == "cpu_libraries"]
    assert found.gain_ns == pytest.approx((2 + copied) * MS)
