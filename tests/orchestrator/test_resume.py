import fcntl
import os
import signal
from typing import Any

import pytest

from nsight_prof.orchestrator.run import journal, runner, steps
from nsight_prof.orchestrator.system.stopping import STOPS
from nsight_prof.parsers.errors import Interrupted, ProfError, StepFailed, UsageError
from nsight_prof.parsers.run.directory import RunDir, StepState, read_manifest, write_manifest


def test_a_finished_run_does_nothing_again_but_the_report(lab: Any, watcher: Any) -> None:
    lab.run()
    lab.log.unlink()
    watching = watcher()
    lab.run(resume=lab.out, progress=watching)
    assert lab.calls() == []
    assert watching.states == [
        ("trace", "skipped"),
        ("select", "skipped"),
        ("counters", "skipped"),
        ("report", "done"),
    ]


def test_a_failed_counters_step_is_done_again_without_a_new_trace(lab: Any) -> None:
    lab.fake(FAKE_NCU="no-kernels")
    assert lab.run().exit_code == 1
    lab.log.unlink()
    lab.fake(FAKE_NCU="")
    assert lab.run(resume=lab.out).exit_code == 0
    assert [argv[0] for argv in lab.calls()] == ["ncu"]
    assert lab.manifest.step("counters").rerun_reason == "it did not finish (failed)"
    assert (lab.out / "steps/3-counters.failed-1/ncu.log").is_file()


def test_a_changed_input_redoes_the_step_and_all_that_build_on_it(lab: Any) -> None:
    lab.run()
    lab.log.unlink()
    lab.run(lab.recipe("print('changed')"), resume=lab.out)
    assert [argv[0] for argv in lab.calls()] == ["nsys", "ncu"]
    assert lab.manifest.step("trace").rerun_reason == "changed: target file's content"
    assert lab.manifest.step("select").rerun_reason == (
        "a step that it builds on is done again: trace"
    )
    assert (lab.out / "steps/1-trace.replaced-1/trace.sqlite").is_file()


def test_another_choice_of_kernels_keeps_the_trace(lab: Any) -> None:
    lab.run()
    lab.log.unlink()
    lab.run(lab.recipe(select__top_k=1), resume=lab.out)
    assert [argv[0] for argv in lab.calls()] == ["ncu"]
    assert lab.manifest.step("select").rerun_reason == "changed: select.top_k"


def test_a_changed_kernel_file_is_noticed(lab: Any) -> None:
    kernels = lab.folder / "kernels.yaml"
    lab.run(out=lab.folder / "first")
    kernels.write_text((lab.folder / "first/steps/2-select/selection.yaml").read_text())
    recipe = lab.recipe(select__kernels=str(kernels))
    lab.run(recipe)
    lab.log.unlink()
    kernels.write_text(kernels.read_text().replace("count: 1", "count: 2"))
    lab.run(recipe, resume=lab.out)
    assert [argv[0] for argv in lab.calls()] == ["ncu"]


def test_what_a_killed_run_left_is_kept_and_the_step_is_done_again(lab: Any) -> None:
    lab.run()
    # As SIGKILL leaves it: the manifest says running, the folder is partial.
    run = RunDir(lab.out)
    manifest = read_manifest(run)
    trace = manifest.step("trace")
    assert trace is not None
    trace.state, trace.directory = StepState.RUNNING, ""
    write_manifest(run, manifest)
    os.rename(lab.out / "steps/1-trace", lab.out / "steps/1-trace.partial")
    lab.run(resume=lab.out)
    assert lab.manifest.step("trace").rerun_reason == "it did not finish (running)"
    assert (lab.out / "steps/1-trace.failed-1/trace.sqlite").is_file()
    assert (lab.out / "steps/1-trace/trace.sqlite").is_file()


def test_processes_of_a_killed_run_are_ended_before_its_step_is_done_again(lab: Any) -> None:
    lab.run()
    os.rename(lab.out / "steps/1-trace", lab.out / "steps/1-trace.partial")
    partial = lab.out / "steps/1-trace.partial"
    lab.monkeypatch.setattr(journal, "end_leftovers", lambda folder: 2 if folder == partial else 0)
    lab.run(resume=lab.out)
    assert "2 processes" in lab.manifest.step("trace").warnings[0]


def test_a_step_whose_folder_is_gone_is_done_again(lab: Any) -> None:
    lab.run()
    os.rename(lab.out / "steps/3-counters", lab.folder / "elsewhere")
    lab.run(resume=lab.out)
    assert lab.manifest.step("counters").rerun_reason == "its folder steps/3-counters is gone"


@pytest.mark.parametrize("step", ["trace", "counters"])
def test_ctrl_c_while_a_tool_runs_leaves_a_resumable_run(lab: Any, watcher: Any, step: Any) -> None:
    with pytest.raises(Interrupted) as caught:
        lab.run(progress=watcher(stop_at=step))
    assert caught.value.exit_code == 130
    assert f"--resume {lab.out}" in caught.value.hint
    assert lab.state(step) == "failed"
    assert "interrupted" in lab.manifest.step(step).error
    assert lab.run(resume=lab.out).exit_code == 0


@pytest.mark.parametrize(
    ("place", "step"),
    [
        ("nsight_prof.orchestrator.run.steps.export_with", "trace"),
        ("nsight_prof.orchestrator.run.steps.choose_kernels", "select"),
        ("nsight_prof.orchestrator.run.steps.export_csv", "counters"),
        ("nsight_prof.orchestrator.run.runner.make_report", "report"),
    ],
)
def test_ctrl_c_at_any_other_moment_leaves_a_resumable_run(lab: Any, place: Any, step: Any) -> None:
    with lab.monkeypatch.context() as patch:
        patch.setattr(place, press)
        with pytest.raises(Interrupted):
            lab.run()
    assert lab.state(step) == "failed"
    assert lab.run(resume=lab.out).exit_code == 0
    assert {str(s.state) for s in lab.manifest.steps} == {"done"}


def test_ctrl_c_before_the_first_step_leaves_nothing(lab: Any) -> None:
    lab.monkeypatch.setattr("nsight_prof.orchestrator.run.prepare.look_around", press)
    with pytest.raises(Interrupted, match="before the first"):
        lab.run()
    assert not lab.out.exists()


def test_ctrl_c_between_two_steps_is_told_with_the_way_on(lab: Any) -> None:
    class Presses:
        def finished(self, step: Any, state: Any, note: Any) -> None:
            if step == "trace":
                raise KeyboardInterrupt

        def __getattr__(self, name: str) -> Any:
            return lambda *args: None

    with pytest.raises(Interrupted) as caught:
        lab.run(progress=Presses())
    assert f"--resume {lab.out}" in caught.value.hint
    assert lab.run(resume=lab.out).exit_code == 0
    assert len(lab.calls("nsys")) == 1


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_ends_a_run_as_ctrl_c_does(lab: Any, watcher: Any, number: signal.Signals) -> None:
    class Sends(watcher):  # type: ignore[misc]
        def waits(self, step: Any, seconds: Any) -> None:
            if step == "trace":
                signal.raise_signal(number)

    before = signal.getsignal(number)
    with pytest.raises(Interrupted):
        lab.run(lab.recipe("import time; time.sleep(60)"), progress=Sends())
    assert lab.state("trace") == "failed"
    assert signal.getsignal(number) == before
    assert lab.run(resume=lab.out).exit_code == 0


def test_a_signal_that_is_ignored_does_not_end_a_run(lab: Any, watcher: Any) -> None:
    """As under nohup."""

    class HangsUp(watcher):  # type: ignore[misc]
        def waits(self, step: Any, seconds: Any) -> None:
            signal.raise_signal(signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert lab.run(progress=HangsUp()).exit_code == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_two_runs_into_one_folder_are_refused(lab: Any) -> None:
    lab.run()
    with (lab.out / ".lock").open("w") as other:
        other.write("4711\n")
        other.flush()
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match=r"another prof \(process 4711\) is writing"):
            lab.run(resume=lab.out)


def test_a_lock_that_a_dead_run_left_does_not_matter(lab: Any) -> None:
    lab.run()
    (lab.out / ".lock").write_text("999999\n")
    assert lab.run(resume=lab.out).exit_code == 0
    assert not (lab.out / ".lock").exists()


def test_resume_of_something_else_is_refused(lab: Any) -> None:
    with pytest.raises(UsageError, match="not a run directory"):
        lab.run(resume=lab.folder)
    with pytest.raises(UsageError, match="two folders"):
        lab.run(resume=lab.folder / "a", out=lab.folder / "b")


def test_a_sweep_resumes_where_it_stopped(lab: Any, watcher: Any) -> None:
    lab.monkeypatch.setattr(
        "nsight_prof.orchestrator.run.runner.compare_variants", lambda run: ((), run.path)
    )
    changes = {"sweep": {"target.args.batch": [1, 2]}, "counters__enabled": False}
    failing = lab.recipe("import sys; sys.exit('2' in sys.argv)", **changes)
    lab.run(failing)
    lab.log.unlink()
    assert lab.run(failing, resume=lab.out).exit_code == 1
    assert [argv[-1] for argv in lab.calls("nsys")] == ["2"]


@pytest.mark.parametrize("moment", ["manifest", "selection", "report"])
def test_a_full_disk_is_told_and_the_run_is_resumable(lab: Any, moment: Any) -> None:
    def full(*_args: Any, **_kwargs: Any) -> None:
        raise OSError(28, "No space left on device", str(lab.out / "x"))

    places = {
        "manifest": (journal, "write_manifest", fail_after(2, full)),
        "selection": (steps, "write_selection", full),
        "report": (runner, "make_report", full),
    }
    with lab.monkeypatch.context() as patch:
        patch.setattr(*places[moment])
        with pytest.raises(StepFailed, match="disk is full") as caught:
            lab.run()
    assert f"--resume {lab.out}" in caught.value.hint
    assert lab.run(resume=lab.out).exit_code == 0


def test_an_unexpected_error_is_in_the_manifest_too(lab: Any) -> None:
    def broken(_run: Any) -> None:
        raise RuntimeError("a bug")

    lab.monkeypatch.setattr("nsight_prof.orchestrator.run.runner.make_report", broken)
    with pytest.raises(RuntimeError):
        lab.run()
    assert lab.manifest.step("report").error == "RuntimeError('a bug')"


def test_all_errors_of_a_run_are_of_the_family(lab: Any) -> None:
    lab.fake(FAKE_NSYS="importer")
    with pytest.raises(ProfError):
        lab.run()


def press(*_args: Any, **_kwargs: Any) -> None:
    raise KeyboardInterrupt


def fail_after(times: Any, fail: Any) -> Any:
    """Return a write_manifest that works `times` times and then fails for good."""
    left = [times]

    def write(run: Any, manifest: Any) -> Any:
        left[0] -= 1
        return write_manifest(run, manifest) if left[0] >= 0 else fail()

    return write
