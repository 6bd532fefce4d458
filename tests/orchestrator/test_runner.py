import json
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsight_prof.orchestrator.run import journal, runner
from nsight_prof.orchestrator.run.runner import RunOptions, run_recipe
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.directory import RunDir
from nsight_prof.parsers.run.selection import read_selection


def test_a_recipe_runs_from_target_to_report(lab: Any) -> None:
    outcome = lab.run()
    assert outcome.exit_code == 0
    assert outcome.report_path.read_text() == "# report\n"
    assert [step.name for step in lab.manifest.steps] == ["trace", "select", "counters", "report"]
    assert {str(step.state) for step in lab.manifest.steps} == {"done"}
    names = {p.relative_to(lab.out).as_posix() for p in lab.out.rglob("*") if p.is_file()}
    assert {
        "steps/1-trace/trace.sqlite",
        "steps/1-trace/command.json",
        "steps/1-trace/stdout.log",
        "steps/1-trace/stderr.log",
        "steps/2-select/selection.yaml",
        "steps/3-counters/counters.ncu-rep",
        "steps/3-counters/counters.csv",
        "steps/3-counters/ncu.log",
    } <= names
    # It holds the environments of other processes: see docs/security.md.
    assert "steps/1-trace/trace.nsys-rep" not in names
    assert not [name for name in names if "partial" in name or ".lock" in name]


def test_a_clock_that_runs_backwards_makes_no_negative_times(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def now(zone: tzinfo) -> datetime:
        """Each look at the clock of the machine is an hour before the last."""
        nonlocal looks
        looks += 1
        return datetime(2026, 1, 2, tzinfo=zone) - timedelta(hours=looks)

    monkeypatch.setattr(journal, "datetime", SimpleNamespace(now=now))
    lab.run()
    assert looks == len(lab.manifest.steps)
    for step in lab.manifest.steps:
        assert 0 <= step.seconds < 3600
        assert step.started <= step.finished


def test_all_kernels_are_profiled_in_one_ncu_run_of_the_program(lab: Any) -> None:
    lab.run()
    assert [argv[0] for argv in lab.calls()] == ["nsys", "ncu"]
    ncu = lab.calls("ncu")[0]
    chosen = read_selection(lab.out / "steps/2-select/selection.yaml").kernels
    assert len(chosen) == 3
    regex = ncu[ncu.index("--kernel-name") + 1]
    assert regex.startswith("regex:^(nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT|")
    assert "--filter-mode" in ncu


def test_the_target_is_given_its_output_files_and_they_are_kept(lab: Any) -> None:
    lab.run(lab.recipe("import sys; print('out'); print('err', file=sys.stderr)"))
    assert "out" in (lab.out / "steps/1-trace/stdout.log").read_text()
    assert "err" in (lab.out / "steps/1-trace/stderr.log").read_text()


def test_the_manifest_tells_tools_gpus_and_the_resolved_recipe(lab: Any) -> None:
    lab.run()
    manifest = lab.manifest
    assert manifest.tools == {"nsys": "2025.3.1.0", "ncu": "2025.3.1.0"}
    assert manifest.gpus[0]["name"] == "NVIDIA H200"
    assert manifest.software["driver"] == "580.95"
    assert manifest.recipe["name"] == "lab"
    assert "ncu left the GPU clocks as they were (clock_control: none)" in manifest.assumptions
    trace = manifest.step("trace")
    assert trace.exit_code == 0
    assert trace.seconds is not None
    assert trace.argv[1] == "profile"


def test_command_json_repeats_the_command(lab: Any) -> None:
    lab.run(lab.recipe(target__env={"CUDA_LAUNCH_BLOCKING": "1"}))
    record = json.loads((lab.out / "steps/3-counters/command.json").read_text())
    assert record["argv"] == lab.manifest.step("counters").argv
    assert record["tool"]["version"] == "2025.3.1.0"
    assert record["environment"]["CUDA_LAUNCH_BLOCKING"] == "1"
    assert record["environment"]["LC_ALL"] == "C"
    assert record["cwd"] == str(lab.folder)


def test_the_target_runs_in_its_folder_and_the_captures_land_in_ours(lab: Any) -> None:
    elsewhere = lab.folder / "elsewhere"
    elsewhere.mkdir()
    recipe = lab.recipe("open('here', 'w').close()", target__cwd=str(elsewhere))
    assert lab.run(recipe, out=Path("relative")).exit_code == 0
    assert [path.name for path in elsewhere.iterdir()] == ["here"]
    assert (lab.folder / "relative/steps/1-trace/trace.sqlite").is_file()


def test_the_trace_alone_needs_no_ncu(lab: Any) -> None:
    lab.monkeypatch.setattr(
        "nsight_prof.orchestrator.run.machine.find_ncu", lambda env: pytest.fail("asked")
    )
    outcome = lab.run(lab.recipe(counters__enabled=False))
    assert outcome.exit_code == 0
    assert [step.name for step in lab.manifest.steps] == ["trace", "report"]


def test_lines_that_launch_come_from_a_second_run_that_times_each_line(lab: Any) -> None:
    script = "import os; print(*map(os.environ.get, ('PROF_LINES', 'PYTHONPATH')))"
    recipe = lab.recipe(
        script, trace__launch_lines=True, trace__python_sampling=True, counters__enabled=False
    )
    assert lab.run(recipe).exit_code == 0
    first, second = lab.calls("nsys")
    assert "--python-sampling=true" in first
    assert "--python-sampling=true" not in second
    folder = lab.out / "steps/1-trace"
    assert (folder / "stdout.log").read_text().split()[0] == "None"
    at, timer = (folder / "lines/stdout.log").read_text().split()[:2]
    assert (Path(at).name, Path(timer).name) == ("lines", "line_timer")
    assert sorted(path.name for path in (folder / "lines").glob("trace*")) == ["trace.sqlite"]


def test_a_second_run_that_fails_leaves_the_trace_and_a_warning(lab: Any) -> None:
    script = "import os, sys; sys.exit('PROF_LINES' in os.environ)"
    outcome = lab.run(lab.recipe(script, trace__launch_lines=True, counters__enabled=False))
    assert outcome.exit_code == 0
    (warning,) = lab.manifest.step("trace").warnings
    assert warning.startswith("the lines that launch each kernel are not known: ")


def test_counters_on_given_kernels_need_no_trace(lab: Any) -> None:
    recipe = lab.recipe(trace__enabled=False, select__kernels=["_Z6kernelPf"])
    assert lab.run(recipe).exit_code == 0
    (ncu,) = lab.calls()
    assert ncu[ncu.index("--kernel-name") + 1] == "regex:^(_Z6kernelPf)$"


def test_rules_of_ncu_are_kept_as_ncu_prints_them(lab: Any) -> None:
    lab.run(lab.recipe(counters__rules=True))
    (ncu,) = lab.calls("ncu")
    assert ncu[ncu.index("--apply-rules") + 1] == "yes"
    text = (lab.out / "steps/3-counters/details.csv").read_text()
    assert "LaunchConfiguration" in text
    assert (lab.out / "steps/3-counters/counters.csv").read_text() != text


def test_the_trace_of_another_run_is_used_again(lab: Any) -> None:
    lab.run(lab.recipe(counters__enabled=False), out=lab.folder / "first")
    lab.log.unlink()
    lab.run(lab.recipe(trace__from=str(lab.folder / "first")))
    assert [argv[0] for argv in lab.calls()] == ["ncu"]
    assert (lab.out / "steps/1-trace/trace.sqlite").is_file()


def test_the_trace_of_another_program_is_used_with_a_warning(lab: Any) -> None:
    lab.run(out=lab.folder / "first")
    recipe = lab.recipe(trace__from=str(lab.folder / "first"), target__args={"n": 2})
    lab.run(recipe)
    assert 'target.args is {"n": 2} here' in lab.manifest.assumptions[0]


def test_a_run_without_a_trace_to_use_is_refused_before_anything_starts(lab: Any) -> None:
    with pytest.raises(UsageError, match="is not a run directory"):
        lab.run(lab.recipe(trace__from="nowhere"))
    assert not lab.out.exists()


def test_without_out_the_folder_is_named_after_recipe_and_time(lab: Any) -> None:
    first = lab.run(lab.recipe(counters__enabled=False), out=None).run_dir
    second = lab.run(lab.recipe(counters__enabled=False), out=None).run_dir
    assert first.parent.name == "runs"
    assert first.name.startswith("lab-")
    assert first != second


def test_a_folder_that_holds_something_is_refused_and_kept(lab: Any) -> None:
    lab.out.mkdir()
    (lab.out / "precious.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        lab.run()
    assert [p.name for p in lab.out.iterdir()] == ["precious.txt"]


def test_force_replaces_an_old_run_and_nothing_else(lab: Any) -> None:
    lab.run()
    (lab.out / "precious.txt").write_text("mine")
    (lab.out / "steps" / "mine").mkdir()
    (lab.out / "steps" / "1-trace.failed-1").mkdir()
    lab.run(force=True)
    assert (lab.out / "precious.txt").is_file()
    assert (lab.out / "steps" / "mine").is_dir()
    assert not (lab.out / "steps" / "1-trace.failed-1").exists()


def test_force_keeps_the_old_run_where_this_machine_cannot_profile(lab: Any) -> None:
    lab.run()
    lab.monkeypatch.setattr("nsight_prof.orchestrator.run.machine.has_gpu", lambda: False)
    with pytest.raises(Exception, match="no NVIDIA GPU"):
        lab.run(force=True)
    assert (lab.out / "steps/1-trace/trace.sqlite").is_file()


def test_a_sweep_runs_every_variant_and_compares_them(lab: Any, watcher: Any) -> None:
    compared = []
    report: Path = lab.folder / "sweep.md"

    def compare(run: RunDir) -> tuple[tuple[str, ...], Path]:
        compared.append(run)
        return ("The second takes twice as much.",), report

    lab.monkeypatch.setattr(runner, "compare_variants", compare)
    recipe = lab.recipe(sweep={"target.args.batch": [1, 2]}, counters__enabled=False)
    watching = watcher()
    outcome = lab.run(recipe, progress=watching)
    assert watching.variants == ["batch=1", "batch=2"] == lab.manifest.variants
    assert outcome.report_path == report
    assert outcome.findings == ("The second takes twice as much.",)
    assert len(compared) == 1
    assert [argv[-1] for argv in lab.calls("nsys")] == ["1", "2"]
    for name in watching.variants:
        assert (lab.out / "variants" / name / "manifest.json").is_file()


def test_a_failed_variant_stops_no_other(lab: Any) -> None:
    lab.monkeypatch.setattr(runner, "compare_variants", lambda run: ((), run.path / "sweep.md"))
    recipe = lab.recipe(
        "import sys; sys.exit('1' in sys.argv)",
        sweep={"target.args.batch": [1, 2]},
        counters__enabled=False,
    )
    outcome = lab.run(recipe)
    assert outcome.exit_code == 1
    assert "batch=1" in outcome.errors[0].message


def test_progress_tells_each_step_and_what_it_waits_for(lab: Any, watcher: Any) -> None:
    watching = watcher()
    run_recipe(lab.recipe(), RunOptions(out=lab.out, progress=watching))
    assert watching.states == [(s, "done") for s in ("trace", "select", "counters", "report")]


def test_ncu_gets_the_numbers_of_the_ranges_that_the_trace_was_cut_to(lab: Any) -> None:
    lab.fake(FAKE_TRACE="vllm")
    prefill, decode = (
        f"execute_context_{a}_generation_{b}" for a, b in (("2(32)", "0(0)"), ("0(0)", "2(2)"))
    )
    lab.run(lab.recipe(capture={"nvtx": [decode, prefill], "occurrence": 1}))
    (argv,) = lab.calls("ncu")
    assert argv[argv.index("--range-filter") + 1] == "::1|2"
