"""Everything that can go wrong in a run: clear error and hint, right exit code, captures kept."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.run import steps
from nsight_prof.orchestrator.run.work import Call, failure
from nsight_prof.orchestrator.system.process import Finished
from nsight_prof.parsers.errors import (
    ArtifactUnreadable,
    NoKernels,
    PermissionRefused,
    StepFailed,
    ToolMissing,
    UsageError,
)
from tests.processes import gone


def files(lab: Any) -> Any:
    return {path.relative_to(lab.out).as_posix() for path in lab.out.rglob("*") if path.is_file()}


def everything_written(lab: Any) -> Any:
    """All bytes of all files of the run."""
    return b"".join(path.read_bytes() for path in lab.out.rglob("*") if path.is_file())


def test_nsys_missing(lab: Any) -> None:
    lab.monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(ToolMissing, match="nsys .* is not on PATH") as caught:
        lab.run()
    assert caught.value.exit_code == 3
    assert "--replay" in caught.value.hint
    assert not lab.out.exists()


def test_ncu_missing_still_gives_the_report_of_the_trace(lab: Any) -> None:
    only = lab.folder / "bin"
    only.mkdir()
    (only / "nsys").symlink_to(f"{os.environ['PATH'].partition(':')[0]}/nsys")
    lab.monkeypatch.setenv("PATH", f"{only}:/usr/bin:/bin")
    outcome = lab.run()
    assert outcome.exit_code == 3
    assert outcome.report_path.is_file()
    assert lab.state("trace") == "done"
    assert lab.state("counters") == "unsupported"
    assert "ncu" in lab.manifest.step("counters").error


def test_no_gpu(lab: Any) -> None:
    lab.monkeypatch.setattr("nsight_prof.orchestrator.run.machine.has_gpu", lambda: False)
    with pytest.raises(ToolMissing, match="no NVIDIA GPU") as caught:
        lab.run()
    assert "--replay" in caught.value.hint
    assert lab.calls() == []


def test_permission_is_asked_before_the_long_run_and_the_trace_is_still_reported(lab: Any) -> None:
    lab.fake(FAKE_NCU="permission")
    outcome = lab.run()
    assert outcome.exit_code == 3
    assert isinstance(outcome.errors[0], PermissionRefused)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in outcome.errors[0].hint
    assert "--cap-add SYS_ADMIN" in outcome.errors[0].hint
    assert outcome.report_path.is_file()
    assert [argv[0] for argv in lab.calls()] == ["nsys"]
    record = lab.manifest.step("counters")
    assert str(record.state) == "unsupported"
    assert "ERR_NVGPUCTRPERM" in record.error
    assert record.hint


def test_permission_refused_by_the_driver_parameters_needs_no_try(lab: Any) -> None:
    lab.monkeypatch.setattr(
        "nsight_prof.orchestrator.system.permission.counters_refused", lambda: "administrators only"
    )
    outcome = lab.run()
    assert outcome.exit_code == 3
    assert "tiny_kernel" not in lab.log.read_text()


def test_permission_refused_only_at_the_real_run(lab: Any) -> None:
    lab.fake(FAKE_NCU="permission-late")
    outcome = lab.run()
    assert isinstance(outcome.errors[0], PermissionRefused)
    assert lab.state("counters") == "failed"
    assert "steps/3-counters.failed-1/ncu.log" in files(lab)


def test_a_driver_that_ncu_cannot_work_with(lab: Any) -> None:
    lab.fake(FAKE_NCU="driver")
    outcome = lab.run()
    assert outcome.exit_code == 3
    assert "not compatible" in outcome.errors[0].message


def says(lab: Any, words: str) -> Any:
    """Return a function that tells whether the program of the trace has printed `words`."""
    log = lab.out / "steps/1-trace.partial/stdout.log"
    return lambda: log.is_file() and words in log.read_text()


def test_a_program_that_never_ends_after_its_capture_leaves_a_whole_trace(
    lab: Any, watcher: Any, timeout_when: Any
) -> None:
    lab.fake(FAKE_NSYS="lingers")
    watching = watcher()
    timeout_when(says(lab, "Capture range ended"))
    recipe = lab.recipe(capture="profiler-api", trace__timeout=600)
    assert lab.run(recipe, progress=watching).exit_code == 0
    assert lab.state("trace") == lab.state("counters") == "done"
    assert "was ended; the capture range had come to its end" in watching.warnings[0]


@pytest.mark.parametrize(("mode", "capture"), [("stuck", "profiler-api"), ("lingers", "all")])
def test_a_program_that_never_ends_without_a_whole_capture_fails(
    lab: Any, mode: str, capture: str, timeout_when: Any
) -> None:
    lab.fake(FAKE_NSYS=mode)
    timeout_when(says(lab, "Capture range ended" if mode == "lingers" else "target ran"))
    with pytest.raises(StepFailed, match="did not end within 600 s"):
        lab.run(lab.recipe(capture=capture, trace__timeout=600))
    assert lab.state("trace") == "failed"


def test_the_target_exits_non_zero(lab: Any) -> None:
    recipe = lab.recipe("import sys; print('half way'); sys.exit(3)")
    with pytest.raises(StepFailed, match="exit code 3 under nsys") as caught:
        lab.run(recipe)
    assert caught.value.exit_code == 1
    assert "stdout.log" in caught.value.hint
    assert "steps/1-trace.failed-1/trace.nsys-rep" in files(lab)
    assert "half way" in (lab.out / "steps/1-trace.failed-1/stdout.log").read_text()
    assert lab.manifest.step("trace").exit_code == 3


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("ModuleNotFoundError: No module named 'torch'", "no module torch", "target.python"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB", "too little memory", "batch"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "sees no GPU", "nvidia-smi"),
        ("CUDA driver version is insufficient for CUDA runtime", "driver is older", "update"),
        ("OSError: [Errno 28] No space left on device", "disk is full", "free space"),
    ],
)
def test_the_targets_own_words_are_explained(lab: Any, line: Any, message: Any, hint: Any) -> None:
    with pytest.raises((StepFailed, ToolMissing), match=message) as caught:
        lab.run(lab.recipe(f"import sys; sys.exit({line!r})"))
    assert hint in caught.value.hint


def test_the_target_hangs(lab: Any, timeout_when: Any) -> None:
    pid = lab.folder / "pid"
    recipe = lab.recipe(
        f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); print('hangs', "
        "flush=True); time.sleep(600)",
        trace__timeout=600,
    )
    timeout_when(says(lab, "hangs"))
    with pytest.raises(StepFailed, match="did not end within 600 s") as caught:
        lab.run(recipe)
    assert "trace.timeout" in caught.value.hint
    assert gone(int(pid.read_text()))


def test_nsys_is_killed(lab: Any) -> None:
    lab.fake(FAKE_NSYS="killed")
    with pytest.raises(StepFailed, match=r"killed \(SIGKILL\)") as caught:
        lab.run()
    assert "memory" in caught.value.hint


def test_the_target_is_killed(lab: Any) -> None:
    recipe = lab.recipe("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(StepFailed):
        lab.run(recipe)
    assert lab.state("trace") == "failed"


def test_no_kernels_seen_hints_at_spawn(lab: Any) -> None:
    lab.fake(FAKE_NSYS="no-kernels")
    with pytest.raises(NoKernels) as caught:
        lab.run()
    assert caught.value.exit_code == 4
    assert "spawn" in caught.value.hint
    assert str(lab.out / "steps/1-trace.failed-1/trace.sqlite") in str(caught.value)
    assert "steps/1-trace.failed-1/trace.sqlite" in files(lab)


def test_megabytes_of_output_are_kept_in_the_log(lab: Any) -> None:
    lab.run(lab.recipe("print('x' * 5_000_000)", counters__enabled=False))
    assert (lab.out / "steps/1-trace/stdout.log").stat().st_size > 5_000_000


def test_ncu_hangs(lab: Any, timeout_when: Any) -> None:
    lab.fake(FAKE_NCU="hang")
    timeout_when(lambda: bool(lab.calls("ncu")))
    outcome = lab.run(lab.recipe(counters__timeout=600))
    assert outcome.exit_code == 1
    assert "did not end within 600 s" in outcome.errors[0].message
    assert "select.exclude" in outcome.errors[0].hint
    assert outcome.report_path.is_file()
    assert lab.state("counters") == "failed"


def test_ncu_profiles_no_kernel(lab: Any) -> None:
    lab.fake(FAKE_NCU="no-kernels")
    outcome = lab.run()
    assert outcome.exit_code == 1
    assert "ncu profiled no kernel; ncu saw 2 others" in outcome.errors[0].message
    assert outcome.report_path.is_file()


def test_ncu_is_killed(lab: Any) -> None:
    lab.fake(FAKE_NCU="killed")
    assert "SIGKILL" in lab.run().errors[0].message


def test_counters_that_another_tool_has_are_asked_for_again(lab: Any) -> None:
    lab.monkeypatch.setattr(steps, "IN_USE_WAITS_S", (0.01, 0.01))
    lab.fake(FAKE_NCU="busy", FAKE_BUSY=str(lab.folder / "was-busy"))
    assert lab.run().exit_code == 0
    assert len(lab.calls("ncu")) == 2
    [warning] = [w for w in lab.manifest.step("counters").warnings if "counters" in w]
    assert "started again after 0.01 s" in warning


def test_counters_that_stay_in_use_fail_with_a_remedy(lab: Any) -> None:
    lab.monkeypatch.setattr(steps, "IN_USE_WAITS_S", (0.01, 0.01))
    lab.fake(FAKE_NCU="says", FAKE_WORDS="==ERROR== A driver resource was unavailable.")
    outcome = lab.run()
    assert "the counters are in use" in outcome.errors[0].message
    assert "dcgmi profile --pause" in outcome.errors[0].hint
    assert len(lab.calls("ncu")) == 3


def test_the_target_fails_only_under_ncu(lab: Any) -> None:
    recipe = lab.recipe(
        "import os, sys; sys.exit(5 if os.environ.get('LC_ALL') == 'C' else 0)",
    )
    outcome = lab.run(recipe)
    assert "exit code 5 under ncu" in outcome.errors[0].message
    assert "steps/3-counters.failed-1/counters.ncu-rep" in files(lab)


def test_a_metric_that_the_chip_lacks_is_left_out_and_told(lab: Any) -> None:
    lab.fake(FAKE_NCU="metric")
    lab.monkeypatch.setattr(
        "nsight_prof.orchestrator.run.steps.choose_metrics",
        lambda *args: ("sm__cycles_active.avg", "sm__no_such.sum"),
    )
    outcome = lab.run()
    assert outcome.exit_code == 0
    first, second = lab.calls("ncu")
    assert "sm__cycles_active.avg,sm__no_such.sum" in first
    assert "sm__cycles_active.avg" in second
    assert any("sm__no_such.sum" in w for w in lab.manifest.step("counters").warnings)


def test_no_metric_that_the_chip_has(lab: Any) -> None:
    lab.fake(FAKE_NCU="metric")
    lab.monkeypatch.setattr(
        "nsight_prof.orchestrator.run.steps.choose_metrics", lambda *args: ("sm__no_such.sum",)
    )
    outcome = lab.run()
    assert "does not know the metric sm__no_such.sum" in outcome.errors[0].message
    assert len(lab.calls("ncu")) == 1


def test_nsys_cannot_import(lab: Any) -> None:
    lab.fake(FAKE_NSYS="importer")
    with pytest.raises(ToolMissing, match="cannot import what it captured") as caught:
        lab.run()
    assert "prof doctor" in caught.value.hint
    assert "steps/1-trace.failed-1/trace.qdstrm" in files(lab)


def test_the_export_fails(lab: Any) -> None:
    lab.fake(FAKE_NSYS="export-fails")
    with pytest.raises(ArtifactUnreadable, match="Cannot read from stream") as caught:
        lab.run()
    assert caught.value.exit_code == 4
    assert "steps/1-trace.failed-1/trace.nsys-rep" in files(lab)


def test_the_csv_export_of_ncu_fails_but_the_report_can_be_read(lab: Any) -> None:
    lab.fake(FAKE_NCU="import-fails")
    lab.monkeypatch.setattr(steps, "can_read_rep", lambda: True)
    lab.monkeypatch.setattr(steps, "read_ncu", lambda path: None)
    assert lab.run().exit_code == 0
    (warning,) = lab.manifest.step("counters").warnings
    assert "counters.csv" in warning
    assert ".partial" not in warning


def test_a_report_of_ncu_that_nothing_can_read_is_no_finished_step(lab: Any) -> None:
    lab.fake(FAKE_NCU="import-fails")
    outcome = lab.run()
    assert outcome.exit_code == 4
    assert lab.state("counters") == "failed"
    assert "steps/3-counters.failed-1/counters.ncu-rep" in files(lab)


def test_the_csv_export_of_ncu_fails_and_nothing_else_can_read_the_report(lab: Any) -> None:
    lab.fake(FAKE_NCU="import-fails")
    lab.monkeypatch.setattr(steps, "can_read_rep", lambda: False)
    outcome = lab.run()
    assert outcome.exit_code == 4
    assert "pip install ncu-report" in outcome.errors[0].hint


def test_an_unknown_schema(lab: Any) -> None:
    lab.fake(FAKE_NSYS="unknown-schema")
    with pytest.raises(ArtifactUnreadable, match=r"gridX.*schema 9\.0\.0"):
        lab.run()


def test_the_disk_fills_up_under_nsys(lab: Any) -> None:
    lab.fake(FAKE_NSYS="disk-full")
    with pytest.raises(StepFailed, match="disk is full") as caught:
        lab.run()
    assert "--resume" in caught.value.hint


def test_the_range_is_never_entered(lab: Any) -> None:
    lab.fake(FAKE_NSYS="no-report")
    with pytest.raises(StepFailed, match="left no report") as caught:
        lab.run(lab.recipe(capture={"nvtx": "decode"}))
    assert "never entered" in caught.value.hint


def test_the_end_of_a_range_that_shuts_the_program_down_is_a_success(lab: Any) -> None:
    lab.fake(FAKE_NSYS="range")
    ends = lab.recipe(
        capture="profiler-api",
        trace__extra_args=["--capture-range-end=stop-shutdown"],
        counters__enabled=False,
    )
    assert lab.run(ends).exit_code == 0
    with pytest.raises(StepFailed):
        lab.run(lab.recipe(counters__enabled=False), out=lab.folder / "other")


def test_an_option_that_nsys_refuses(lab: Any) -> None:
    lab.fake(FAKE_NSYS="bad-option")
    with pytest.raises(UsageError, match="--bogus=1") as caught:
        lab.run(lab.recipe(trace__extra_args=["--bogus=1"]))
    assert "trace.extra_args" in caught.value.hint


def test_a_program_that_does_not_exist(lab: Any) -> None:
    recipe = lab.recipe(target__file=None, target__command=["./no-such-app"])
    with pytest.raises(StepFailed):
        lab.run(recipe)


def test_secrets_of_the_environment_are_in_none_of_our_files(lab: Any) -> None:
    lab.monkeypatch.setenv("HF_TOKEN", "hf_supersecretvalue")
    lab.monkeypatch.setenv("DATABASE_URL", "postgres://me:swordfish99@db/x")
    lab.run(lab.recipe("import os; print(os.environ)"))
    written = everything_written(lab)
    assert b"supersecret" not in written
    assert b"swordfish99" not in written
    assert b"HF_TOKEN" in (lab.out / "steps/1-trace/command.json").read_bytes()
    assert any("HF_TOKEN" in sentence for sentence in lab.manifest.assumptions)


def test_a_secret_that_the_recipe_passes_reaches_the_target_and_is_masked_in_our_files(
    lab: Any,
) -> None:
    lab.monkeypatch.setenv("HF_TOKEN", "hf_supersecretvalue")
    seen = lab.folder / "seen"
    recipe = lab.recipe(
        f"import os; t = os.environ['HF_TOKEN']; print(t); open({str(seen)!r}, 'w').write(t)",
        target__env={"HF_TOKEN": "${HF_TOKEN}"},
        target__args={"api_key": "hf_supersecretvalue"},
    )
    lab.run(recipe)
    assert seen.read_text() == "hf_supersecretvalue"
    kept = {
        path.relative_to(lab.out).as_posix(): path.read_bytes()
        for path in lab.out.rglob("*")
        if path.is_file()
    }
    assert [name for name, content in kept.items() if b"supersecret" in content] == []
    record = json.loads(kept["steps/1-trace/command.json"])
    assert record["environment"]["HF_TOKEN"] == "[redacted]"
    assert record["argv"][-1] == "[redacted]"
    assert any("masked" in w for w in lab.manifest.step("trace").warnings)


def test_a_secret_among_the_arguments_is_not_shown(lab: Any, watcher: Any) -> None:
    lab.monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    said = watcher()
    lab.run(
        lab.recipe(target__args={"token": "hf_0123456789"}, counters__enabled=False),
        progress=said,
    )
    assert any("[redacted]" in words for words in said.waited_for)
    assert not any("hf_0123456789" in words for words in said.waited_for)


def test_the_recorded_environment_is_dropped_from_the_sqlite(lab: Any) -> None:
    lab.monkeypatch.setenv("MY_PRIVATE_HABIT", "coffee-at-nine")
    lab.run(lab.recipe(counters__enabled=False))
    assert b"coffee-at-nine" not in (lab.out / "steps/1-trace/trace.sqlite").read_bytes()


def test_nsys_that_can_is_asked_not_to_record_the_environment(lab: Any) -> None:
    from nsight_prof.orchestrator.system import discover

    discover._answers.cache_clear()
    lab.fake(FAKE_OPTIONS="new")
    lab.run(lab.recipe(counters__enabled=False))
    discover._answers.cache_clear()
    assert "--discard-environment=true" in lab.calls("nsys")[0]


def test_an_exit_code_of_a_signal_is_told_as_one(tmp_path: Path) -> None:
    from nsight_prof.orchestrator.system.discover import Tool

    what = Call("trace", Tool("nsys", sys.executable, "1", frozenset()), [], tmp_path, 5.0)
    error = failure(Finished(139, 1.0, False, "", ""), what, ())
    assert "signal 11" in error.message
