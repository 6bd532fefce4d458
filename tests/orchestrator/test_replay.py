import lzma
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.run.directory import RunDir, StepState, read_manifest, write_manifest
from nsight_prof.parsers.run.selection import read_selection, write_selection


@pytest.fixture
def recorded(lab: Any) -> Any:
    """A recorded run as captures/ holds it: raw artifacts packed, no tools on this machine."""
    folder = lab.folder / "captures" / "recorded"
    lab.run(out=folder)
    for path in folder.glob("steps/*/*"):
        if path.suffix in (".sqlite", ".ncu-rep"):
            path.with_name(path.name + ".xz").write_bytes(lzma.compress(path.read_bytes()))
            path.unlink()
    lab.log.unlink()
    lab.monkeypatch.setattr("nsight_prof.orchestrator.run.machine.has_gpu", lambda: False)
    lab.monkeypatch.setattr(
        "nsight_prof.orchestrator.run.prepare.look_around", lambda *args: pytest.fail("looked")
    )
    return folder


def test_a_recorded_run_goes_through_the_pipeline_without_any_tool(lab: Any, recorded: Any) -> None:
    outcome = lab.run(replay=recorded)
    assert outcome.exit_code == 0
    assert lab.calls() == []
    assert (lab.out / "steps/1-trace/trace.sqlite").is_file()
    assert (lab.out / "steps/3-counters/counters.ncu-rep").is_file()
    assert {str(step.state) for step in lab.manifest.steps} == {"done"}


def test_a_record_older_than_the_step_values_is_replayed_without_it(
    lab: Any, recorded: Path
) -> None:
    recipe = lab.recipe(values__enabled=True)
    assert lab.run(recipe, replay=recorded).exit_code == 3
    assert lab.state("values") == "unsupported"
    manifest = read_manifest(RunDir(recorded))
    del manifest.recipe["values"]
    write_manifest(RunDir(recorded), manifest)
    assert lab.run(recipe, replay=recorded, force=True).exit_code == 0
    assert lab.manifest.step("values") is None


def test_folders_of_a_step_are_replayed_with_it(lab: Any, recorded: Path) -> None:
    answers = recorded / "steps/1-trace/predictions"
    answers.mkdir()
    (answers / "page-1.json").write_text('{"text": "one"}')
    (answers / "page-2.json.xz").write_bytes(lzma.compress(b'{"text": "two"}'))
    lab.run(replay=recorded)
    copied = sorted((lab.out / "steps/1-trace/predictions").iterdir())
    assert [path.name for path in copied] == ["page-1.json", "page-2.json"]
    assert [path.read_text() for path in copied] == ['{"text": "one"}', '{"text": "two"}']


def test_a_folder_that_leads_out_of_the_record_is_refused(lab: Any, recorded: Path) -> None:
    (recorded / "steps/1-trace/predictions").symlink_to(lab.folder, target_is_directory=True)
    with pytest.raises(ArtifactUnreadable, match="does not lie inside of the run"):
        lab.run(replay=recorded)


def test_facts_of_the_machine_are_those_of_the_record(lab: Any, recorded: Any) -> None:
    lab.run(replay=recorded)
    manifest = lab.manifest
    there = read_manifest(RunDir(recorded))
    assert manifest.replayed_from == "recorded"
    assert manifest.gpus == there.gpus
    assert manifest.tools == there.tools
    assert [step.argv for step in manifest.steps] == [step.argv for step in there.steps]


def test_the_selection_is_made_anew(lab: Any, recorded: Any) -> None:
    lab.run(lab.recipe(select__top_k=1), replay=recorded)
    assert len(read_selection(lab.out / "steps/2-select/selection.yaml").kernels) == 1


def test_the_launch_window_is_that_of_the_recorded_counters(lab: Any, recorded: Path) -> None:
    path = recorded / "steps/2-select/selection.yaml"
    there = read_selection(path)
    there.skip, there.count = 1, 1
    for kernel in there.kernels:
        kernel.launch = 1
    write_selection(path, there)
    lab.run(replay=recorded)
    here = read_selection(lab.out / "steps/2-select/selection.yaml")
    assert (here.skip, here.count) == (1, 1)
    assert {kernel.launch for kernel in here.kernels} == {1}
    assert "those of launch 1 of each kernel, as they were recorded" in here.notes[-1]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"target__args": {"batch": 16}}, r'target\.args is \{"batch": 16\} here and \{\} there'),
        ({"trace__args": {"steps": 2}}, r"trace\.args is"),
        ({"capture": "profiler-api"}, 'capture is "profiler-api" here and "all" there'),
        ({"target__file": None, "target__command": ["./app"]}, r"target\.file is null here"),
    ],
)
def test_a_record_of_another_program_is_refused(
    lab: Any, recorded: Any, changes: Any, told: Any
) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        lab.run(lab.recipe(**changes), replay=recorded)
    assert caught.value.exit_code == 2
    assert not lab.out.exists()


def test_a_sweep_is_not_replayed_from_a_single_run(lab: Any, recorded: Any) -> None:
    recipe = lab.recipe(sweep={"target.args.n": [1, 2]})
    with pytest.raises(UsageError, match="is no sweep, and the recipe is one"):
        lab.run(recipe, replay=recorded)
    assert not lab.out.exists()


def test_a_single_run_is_not_replayed_from_a_sweep(lab: Any) -> None:
    sweep = lab.folder / "sweep"
    lab.run(lab.recipe(sweep={"target.args.n": [1, 2]}), out=sweep)
    with pytest.raises(UsageError, match="is a sweep, and the recipe is none") as caught:
        lab.run(replay=sweep)
    assert f"--replay {sweep}/variants/n=1" in caught.value.hint


def test_a_secret_among_the_arguments_is_neither_a_difference_nor_written(lab: Any) -> None:
    lab.monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    recipe = lab.recipe(target__args={"token": "hf_0123456789"})
    lab.run(recipe, out=lab.folder / "recorded")
    lab.run(recipe, replay=lab.folder / "recorded")
    assert "hf_0123456789" not in (lab.out / "manifest.json").read_text()


def test_another_interpreter_or_folder_is_no_other_program(lab: Any, recorded: Any) -> None:
    recipe = lab.recipe(target__python="/opt/other/python", target__cwd="/")
    assert lab.run(recipe, replay=recorded).exit_code == 0


def test_the_target_file_need_not_be_here(lab: Any, recorded: Any) -> None:
    recipe = lab.recipe()
    (lab.folder / "target.py").unlink()
    assert lab.run(recipe, replay=recorded).exit_code == 0


def test_a_record_without_counters_gives_the_report_of_the_trace(lab: Any, recorded: Any) -> None:
    manifest = read_manifest(RunDir(recorded))
    counters = manifest.step("counters")
    assert counters is not None
    counters.state, counters.error = StepState.UNSUPPORTED, "no permission there"
    write_manifest(RunDir(recorded), manifest)
    outcome = lab.run(replay=recorded)
    assert outcome.exit_code == 3
    assert "the recorded run has no counters step: no permission there" in outcome.errors[0].message
    assert lab.state("trace") == "done"


def test_a_damaged_record_is_told(lab: Any, recorded: Any) -> None:
    packed = recorded / "steps/1-trace/trace.sqlite.xz"
    packed.write_bytes(packed.read_bytes()[:100])
    with pytest.raises(ArtifactUnreadable, match="cannot be unpacked"):
        lab.run(replay=recorded)


def test_a_folder_that_is_no_run_is_refused(lab: Any, recorded: Any) -> None:
    with pytest.raises(UsageError, match="not a run directory"):
        lab.run(replay=lab.folder)


def test_a_replay_is_resumed_like_any_run(lab: Any, recorded: Any) -> None:
    lab.run(replay=recorded)
    outcome = lab.run(replay=recorded, resume=lab.out)
    assert outcome.exit_code == 0


@pytest.fixture
def benchmark(lab: Any) -> Any:
    """A recipe of the fake benchmark, whose record has two processes and three repeats."""
    target = Path(__file__).resolve().parent.parent / "fakes/bench_target.py"

    def make(**changes: Any) -> Any:
        changes = {"bench": {"processes": 1}, **changes}
        return lab.recipe(target__file=str(target), **changes)

    lab.run(make(bench={"processes": 2, "repeat": 3}), out=lab.folder / "benchmark")
    lab.log.unlink()
    lab.monkeypatch.setattr(
        "nsight_prof.orchestrator.run.prepare.look_around", lambda *args: pytest.fail("looked")
    )
    return make


def test_a_benchmark_is_replayed_with_all_that_was_measured(lab: Any, benchmark: Any) -> None:
    assert lab.run(benchmark(), replay=lab.folder / "benchmark").exit_code == 0
    assert lab.calls() == []
    assert len(list((lab.out / "steps/1-bench").glob("result-*.jsonl"))) == 6
    assert (lab.out / "steps/2-counters/result.jsonl").is_file()
    bench = lab.manifest.recipe["bench"]
    assert (bench["processes"], bench["repeat"]) == (2, 3)


def test_arguments_of_a_step_that_is_left_out_are_not_compared(lab: Any, recorded: Any) -> None:
    recipe = lab.recipe(untraced__args={"steps": 2}, operators__args={"steps": 2})
    assert lab.run(recipe, replay=recorded).exit_code == 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"target__args": {"seed": 3}}, r'target\.args is \{"seed": 3\} here'),
        ({"bench": {"count_args": {"launches": 2}}}, r"bench\.count_args is"),
        ({"bench": None}, "it is no benchmark here and one there"),
    ],
)
def test_a_record_of_another_benchmark_is_refused(
    lab: Any, benchmark: Any, changes: Any, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        lab.run(benchmark(**changes), replay=lab.folder / "benchmark")
