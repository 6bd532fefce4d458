"""A benchmark recipe from its target to its report, on a machine of fakes."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.run.bench_records import cut_half_line, last_line, tensor_dtypes
from nsight_prof.parsers.errors import Interrupted, StepFailed, ToolMissing

FAKE = Path(__file__).resolve().parent.parent / "fakes/bench_target.py"


def recipe(lab: Any, **changes: Any) -> Any:
    """A benchmark of the fake target in three processes."""
    changes.setdefault("bench", {"processes": 3})
    return lab.recipe(**{"target__file": str(FAKE), **changes})


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def files(lab: Any) -> list[str]:
    return sorted(path.name for path in (lab.out / "steps/1-bench").glob("result-*"))


def test_a_benchmark_is_measured_counted_and_reported(lab: Any, watcher: Any) -> None:
    watching = watcher()
    outcome = lab.run(recipe(lab), progress=watching)
    assert outcome.exit_code == 0
    assert watching.states == [(step, "done") for step in ("bench", "counters", "report")]
    assert files(lab) == ["result-1-1.jsonl", "result-1-2.jsonl", "result-1-3.jsonl"]
    assert (lab.out / "steps/2-counters/counters.csv").is_file()
    counted = records(lab.out / "steps/2-counters/result.jsonl")
    assert {case["status"] for case in counted[1:]} == {"counted"}


def test_each_process_is_a_fresh_one_and_knows_its_numbers(lab: Any, watcher: Any) -> None:
    watching = watcher()
    bench = {"processes": 2, "repeat": 2}
    lab.run(recipe(lab, bench=bench, counters__enabled=False), progress=watching)
    begun = [records(lab.out / "steps/1-bench" / name)[0] for name in files(lab)]
    assert [(one["repeat"], one["process"]) for one in begun] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert watching.parts == [f"process {number} of 4" for number in (1, 2, 3, 4)]


def test_the_logs_of_all_processes_stand_in_one_file(lab: Any) -> None:
    lab.run(recipe(lab))
    lines = (lab.out / "steps/1-bench/stderr.log").read_text().splitlines()
    assert [line for line in lines if "begins" in line] == [
        f"process {number} begins" for number in (1, 2, 3)
    ]
    assert not list((lab.out / "steps/1-bench").glob("stderr-*"))


def test_the_target_is_not_profiled_while_it_measures(lab: Any) -> None:
    lab.run(recipe(lab))
    assert [argv[0] for argv in lab.calls()] == ["ncu"]
    (ncu,) = lab.calls()
    assert "--nvtx" in ncu
    assert ncu[ncu.index("--profile-from-start") + 1] == "off"
    assert "--kernel-name" not in ncu
    assert "--launch-count" not in ncu
    assert ncu[-3:] == ["--count", "--out", str(lab.out / "steps/2-counters.partial/result.jsonl")]


def test_the_counting_run_has_arguments_of_its_own(lab: Any) -> None:
    bench = {"count_args": {"launches": 2, "seed": None}}
    lab.run(recipe(lab, bench=bench, target__args={"seed": 7, "only": "dram"}))
    (ncu,) = lab.calls()
    assert "--seed" not in ncu
    assert ncu[ncu.index("--launches") + 1] == "2"
    assert ncu[ncu.index("--only") + 1] == "dram"
    assert lab.manifest.step("bench").argv[2:6] == ["--seed", "7", "--only", "dram"]


def test_the_tensor_types_to_count_are_those_of_the_measured_cases(lab: Any) -> None:
    lab.run(recipe(lab, counters__sets=["tensor"]))
    (ncu,) = lab.calls()
    metrics = ncu[ncu.index("--metrics") + 1]
    assert "tensor_op_hmma_src_bf16" in metrics or "src_bf16" in metrics
    assert "src_fp8" not in metrics


def test_a_process_that_dies_keeps_its_cases_and_stops_no_other(lab: Any, watcher: Any) -> None:
    lab.fake(FAKE_BENCH="half@2")
    watching = watcher()
    outcome = lab.run(recipe(lab), progress=watching)
    assert outcome.exit_code == 1
    assert outcome.report_path.is_file()
    assert outcome.errors[0].message.startswith("1 of 3 processes of the benchmark failed; ")
    assert lab.state("bench") == "done"
    assert [len(records(lab.out / "steps/1-bench" / name)) - 1 for name in files(lab)] == [3, 1, 3]
    (warning,) = lab.manifest.step("bench").warnings
    assert warning.startswith("process 2 of 3 failed after 1 cases, which are kept: ")
    assert "illegal memory access" in warning
    assert watching.warnings.count(warning) == 1


def test_a_process_without_a_case_stops_no_other(lab: Any) -> None:
    lab.fake(FAKE_BENCH="broken@1")
    assert lab.run(recipe(lab)).exit_code == 1
    (warning,) = lab.manifest.step("bench").warnings
    assert "process 1 of 3 failed before its first case: the target says: the case file" in warning


def test_a_resumed_benchmark_starts_the_processes_that_failed(lab: Any, watcher: Any) -> None:
    lab.fake(FAKE_BENCH="dies@2")
    lab.run(recipe(lab))
    lab.fake(FAKE_BENCH="")
    watching = watcher()
    assert lab.run(recipe(lab), resume=lab.out, progress=watching).exit_code == 0
    assert watching.parts == ["process 2 of 3"]
    assert lab.manifest.step("bench").rerun_reason.startswith("it was done in part: 1 of 3 ")
    assert lab.manifest.step("bench").error == ""
    assert [len(records(lab.out / "steps/1-bench" / name)) - 1 for name in files(lab)] == [3, 3, 3]


def test_where_all_fail_the_target_says_why(lab: Any) -> None:
    lab.fake(FAKE_BENCH="broken")
    with pytest.raises(StepFailed, match="the target says: the case file is damaged") as caught:
        lab.run(recipe(lab))
    assert caught.value.hint.startswith("fetch it again")
    assert lab.state("bench") == "failed"
    assert lab.calls() == []
    assert (lab.out / "steps/1-bench.failed-1/stderr.log").read_text().count("damaged") == 3


def test_a_target_that_sees_no_gpu_is_started_once(lab: Any) -> None:
    lab.fake(FAKE_BENCH="no-gpu")
    with pytest.raises(ToolMissing, match="sees no CUDA device"):
        lab.run(recipe(lab))
    assert (lab.out / "steps/1-bench.failed-1/stderr.log").read_text().count("no CUDA device") == 1


def test_a_machine_without_a_gpu_says_how_to_try_all_the_same(lab: Any) -> None:
    lab.monkeypatch.setattr("nsight_prof.orchestrator.run.machine.has_gpu", lambda: False)
    with pytest.raises(ToolMissing, match="no NVIDIA GPU") as caught:
        lab.run(recipe(lab))
    assert "--set target.args.device=cpu --set counters.enabled=false" in caught.value.hint


def test_without_counters_no_gpu_is_needed(lab: Any) -> None:
    lab.monkeypatch.setattr("nsight_prof.orchestrator.run.machine.has_gpu", lambda: False)
    outcome = lab.run(recipe(lab, counters__enabled=False))
    assert outcome.exit_code == 0
    assert [step.name for step in lab.manifest.steps] == ["bench", "report"]


def test_a_target_that_measures_nothing_is_a_failure(lab: Any) -> None:
    lab.fake(FAKE_BENCH="nothing")
    with pytest.raises(StepFailed, match="wrote no case"):
        lab.run(recipe(lab))


def test_a_target_that_hangs_from_the_first_is_ended_once(
    lab: Any, watcher: Any, timeout_when: Any
) -> None:
    lab.fake(FAKE_BENCH="hang")
    watching = watcher()
    timeout_when(lambda: "bench: process 1 begins" in watching.details)
    with pytest.raises(StepFailed, match="did not end within 600 s") as caught:
        lab.run(recipe(lab, bench={"timeout": "10m"}), progress=watching)
    assert watching.parts == ["process 1 of 3"]
    assert "bench.timeout" in caught.value.hint


def test_refused_counters_leave_the_report_of_what_was_measured(lab: Any) -> None:
    lab.fake(FAKE_NCU="permission")
    outcome = lab.run(recipe(lab))
    assert outcome.exit_code == 3
    assert outcome.report_path.is_file()
    assert (lab.state("bench"), lab.state("counters")) == ("done", "unsupported")


def test_a_finished_benchmark_is_not_measured_again(lab: Any, watcher: Any) -> None:
    lab.run(recipe(lab))
    lab.log.unlink()
    watching = watcher()
    lab.run(recipe(lab), resume=lab.out, progress=watching)
    assert watching.states[:2] == [("bench", "skipped"), ("counters", "skipped")]
    assert lab.calls() == []


def test_ctrl_c_keeps_finished_processes_for_a_resumed_run(lab: Any, watcher: Any) -> None:
    class Impatient(watcher):  # type: ignore[misc]
        def doing(self, step: Any, part: str, detail: str) -> None:
            super().doing(step, part, detail)
            if part == "process 3 of 3":
                raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        lab.run(recipe(lab), progress=Impatient())
    kept = lab.out / "steps/1-bench.failed-1"
    assert (kept / "result-1-2.jsonl").is_file()
    first = (kept / "result-1-1.jsonl").stat().st_ino
    watching = watcher()
    assert lab.run(recipe(lab), resume=lab.out, progress=watching).exit_code == 0
    assert watching.parts == ["process 3 of 3"]
    assert files(lab) == ["result-1-1.jsonl", "result-1-2.jsonl", "result-1-3.jsonl"]
    assert (kept / "result-1-1.jsonl").stat().st_ino == first
    assert "2 of 3 processes were measured before" in lab.manifest.step("bench").warnings[0]


def test_more_repeats_add_to_what_was_measured(lab: Any, watcher: Any) -> None:
    lab.run(recipe(lab))
    lab.log.unlink()
    watching = watcher()
    more = recipe(lab, bench={"processes": 3, "repeat": 2})
    lab.run(more, resume=lab.out, progress=watching)
    assert lab.manifest.step("bench").rerun_reason == "changed: bench.repeat"
    assert watching.parts == [f"process {number} of 6" for number in (4, 5, 6)]
    assert len(files(lab)) == 6
    assert lab.calls() == []  # the counters are those of the same cases


def test_records_of_another_program_or_gpu_are_not_mixed_in(lab: Any, watcher: Any) -> None:
    lab.run(recipe(lab, counters__enabled=False))
    watching = watcher()
    other = recipe(lab, target__args={"seed": 1}, counters__enabled=False)
    lab.run(other, resume=lab.out, progress=watching)
    assert len(watching.parts) == 3


def test_the_end_of_a_whole_run_signal_reaches_the_target(lab: Any) -> None:
    lab.fake(FAKE_BENCH="hang")
    lab.monkeypatch.setattr(
        "nsight_prof.orchestrator.run.work.run",
        lambda command, waits: signal.raise_signal(signal.SIGTERM),
    )
    with pytest.raises(Interrupted):
        lab.run(recipe(lab))


def test_only_the_last_line_that_says_something_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    assert last_line(log) == ""
    log.write_text("first\n\x1b[32msecond\x1b[0m: 10 %\r\n  \n")
    assert last_line(log) == "second: 10 %"


def test_half_a_record_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "result.jsonl"
    path.write_text('{"a": 1}\n{"b": ')
    cut_half_line(path)
    assert path.read_text() == '{"a": 1}\n'
    cut_half_line(tmp_path / "absent.jsonl")


def test_types_that_are_not_for_the_tensor_cores_are_counted_only_alone(tmp_path: Path) -> None:
    path = tmp_path / "result.jsonl"
    case = {"record": "case", "status": "ok"}
    vector = case | {"level": "fp64", "dtype": "fp64"}
    path.write_text(json.dumps(vector) + "\n")
    assert tensor_dtypes([path]) == {"fp64"}
    tensor = case | {"level": "tensor", "dtype": "float8_e4m3fn"}
    path.write_text(json.dumps(vector) + "\n" + json.dumps(tensor) + "\nbroken\n")
    assert tensor_dtypes([path]) == {"fp8"}
