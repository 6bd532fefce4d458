"""`prof run` from the command line, against fake nsys and ncu."""

from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator import cli
from nsight_prof.orchestrator.commands import run as command
from nsight_prof.orchestrator.run import runner
from nsight_prof.parsers.errors import PermissionRefused
from nsight_prof.parsers.run.directory import RunDir, read_manifest


@pytest.fixture
def recipe(lab: Any) -> str:
    """A recipe file whose target is a script beside it."""
    (lab.folder / "target.py").write_text("print('target ran')")
    path = lab.folder / "mine.yaml"
    path.write_text("target: {file: target.py}\n")
    return str(path)


def test_a_run_ends_with_the_path_of_its_report(
    lab: Any, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", recipe, "--out", str(lab.out)]) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith(f"report: {lab.out}/report/report.md\n")
    for line in ("trace: done in ", "select: done in ", "counters: done in ", "report: done in "):
        assert line in captured.err
    assert "\x1b" not in captured.err


def test_the_run_directory_is_made_under_runs_by_default(lab: Any, recipe: str) -> None:
    assert cli.main(["run", recipe]) == 0
    (made,) = (lab.folder / "runs").iterdir()
    assert made.name.startswith("mine-")


def test_a_run_that_is_refused_leaves_no_folder(
    lab: Any, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsight_prof.orchestrator.run.machine.has_gpu", lambda: False)
    assert cli.main(["run", recipe]) == 3
    assert not (lab.folder / "runs").exists()
    (lab.folder / "runs").mkdir()
    assert cli.main(["run", recipe]) == 3
    assert list((lab.folder / "runs").iterdir()) == []


def test_a_file_called_runs_is_named(
    lab: Any, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab.folder / "runs").write_text("mine")
    assert cli.main(["run", recipe]) == 2
    assert "error: runs/mine-" in capsys.readouterr().err
    assert (lab.folder / "runs").read_text() == "mine"


def test_options_of_nsys_that_nothing_reads_are_warned_of(
    lab: Any, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = ["--set", "trace.extra_args=[--cpuctxsw=process-tree, --sample=none]"]
    assert cli.main(["run", recipe, "--out", "x", *metrics]) == 0
    warned = "prof reads nothing of what --cpuctxsw=process-tree collects"
    assert warned in capsys.readouterr().err
    kept = ["--set", "trace.keep_report=true"]
    assert cli.main(["run", recipe, "--out", "y", *metrics, *kept]) == 0
    assert warned not in capsys.readouterr().err


def test_set_reaches_the_target(lab: Any, recipe: str) -> None:
    assert cli.main(["run", recipe, "--out", "x", "--set", "target.args.batch=16"]) == 0
    assert lab.calls("nsys")[0][-2:] == ["--batch", "16"]


def test_a_second_run_into_one_folder_is_refused(
    lab: Any, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", recipe, "--out", "x"]) == 0
    assert cli.main(["run", recipe, "--out", "x"]) == 2
    assert "error: " in capsys.readouterr().err
    assert cli.main(["run", recipe, "--out", "x", "--force"]) == 0


def test_a_finished_run_is_resumed_without_the_tools(
    lab: Any, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", recipe, "--out", "x"]) == 0
    before = len(lab.calls())
    assert cli.main(["run", recipe, "--resume", "x"]) == 0
    assert len(lab.calls()) == before
    assert "trace: kept, done before, and nothing changed" in capsys.readouterr().err


def test_a_recorded_run_is_replayed_without_the_tools(lab: Any, recipe: str) -> None:
    assert cli.main(["run", recipe, "--out", "x"]) == 0
    before = len(lab.calls())
    assert cli.main(["run", recipe, "--out", "y", "--replay", "x"]) == 0
    assert len(lab.calls()) == before


def test_a_record_with_other_arguments_is_replayed_as_it_was_measured(
    lab: Any, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", recipe, "--out", "x", "--set", "target.args.batch=4"]) == 0
    capsys.readouterr()
    assert cli.main(["run", recipe, "--out", "y", "--replay", "x"]) == 0
    assert 'target.args is {} here and {"batch": 4} there' in capsys.readouterr().err
    assert read_manifest(RunDir(Path("y"))).recipe["target"]["args"] == {"batch": 4}
    # What is asked for is never replaced.
    words = ["run", recipe, "--out", "z", "--replay", "x", "--set", "target.args.batch=5"]
    assert cli.main(words) == 2
    assert "profiled something else" in capsys.readouterr().err


def test_a_failing_target_gives_error_hint_and_exit_code_1(
    lab: Any, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab.folder / "target.py").write_text("import sys; sys.exit('no such model')")
    assert cli.main(["run", recipe, "--out", "x"]) == 1
    error = capsys.readouterr().err
    assert "trace: failed" in error
    assert "\nerror: " in error
    assert "\n\nhint: " in error


def test_a_sweep_runs_every_variant_and_compares_them(
    lab: Any, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = ["--set", "sweep.target.args.batch=[1, 2]"]
    assert cli.main(["run", recipe, "--out", str(lab.out), *sweep]) == 0
    captured = capsys.readouterr()
    assert "run 2 of 2: batch=2\n" in captured.err
    assert f"report: {lab.out}/report/report.md" in captured.out
    assert "batch=2" in (lab.out / "report" / "report.md").read_text()
    assert (lab.out / "variants" / "batch=1" / "manifest.json").is_file()


def test_the_first_three_findings_stand_above_the_report(
    lab: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = tuple(f"Finding {number}." for number in range(1, 6))
    outcome = runner.RunOutcome(lab.out, findings, lab.out / "report.md", 0)
    monkeypatch.setattr(runner, "run_recipe", lambda recipe, options: outcome)
    assert cli.main(["run", "top-kernels"]) == 0
    shown = "\n1. Finding 1.\n2. Finding 2.\n3. Finding 3.\n\nreport: "
    assert capsys.readouterr().out == f"{shown}{lab.out}/report.md\n"


def test_what_failed_on_the_way_is_said_after_the_report(
    lab: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = PermissionRefused("no counters", "ask the administrator")
    outcome = runner.RunOutcome(lab.out, (), lab.out / "report.md", 3, (refused,))
    monkeypatch.setattr(runner, "run_recipe", lambda recipe, options: outcome)
    assert cli.main(["run", "top-kernels"]) == 3
    captured = capsys.readouterr()
    assert captured.out == f"\nreport: {lab.out}/report.md\n"
    assert captured.err == (
        "\nerror: no counters\n\nhint: ask the administrator\n"
        f"      then continue with: prof run … --resume {lab.out}\n"
    )


def test_a_failed_run_says_where_it_is_and_how_to_go_on(
    lab: Any, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.fake(FAKE_NSYS="killed")
    assert cli.main(["run", recipe, "--out", "x"]) == 1
    assert "continue with: prof run … --resume x" in capsys.readouterr().err


def test_a_dry_run_of_a_replay_is_refused(
    lab: Any, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", recipe, "--replay", "x", "--dry-run"]) == 2
    assert "a replay starts none" in capsys.readouterr().err


def test_ctrl_c_says_how_to_go_on(
    lab: Any, recipe: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press(_self: object, step: str, seconds: float) -> None:
        if step == "counters":
            raise KeyboardInterrupt

    monkeypatch.setattr("nsight_prof.orchestrator.terminal.display.Display.waits", press)
    assert cli.main(["run", recipe, "--out", str(lab.out)]) == 130
    assert f"--resume {lab.out}" in capsys.readouterr().err
    assert lab.state("trace") == "done"


def test_options_of_the_command_are_those_of_the_runner() -> None:
    asked = {option.name for option in command.command.params} - {"recipe", "overrides", "dry_run"}
    styles = {"templates", "languages", "as_json", "quiet", "no_profile"}
    of_fleets = {"cluster", "every"}
    assert asked == {"out", "replay", "resume", "force", "repeat", "roofs"} | styles | of_fleets


def test_repeat_is_for_benchmarks(
    lab: Any, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", recipe, "--repeat", "3"]) == 2
    captured = capsys.readouterr().err
    assert "--repeat is for benchmarks, and the recipe mine has no `bench` section" in captured
    assert "hint: " in captured
