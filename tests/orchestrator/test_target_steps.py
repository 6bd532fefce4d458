"""The steps that start the target without Nsight, arguments of single steps, and PROF_RESULTS."""

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.plan import program
from nsight_prof.orchestrator.recipe.read import load_recipe
from nsight_prof.orchestrator.run.dry_run import render_dry_run
from nsight_prof.orchestrator.system.process import Command
from nsight_prof.orchestrator.system.process import run as run_command
from nsight_prof.parsers.errors import RecipeError, StepFailed, UsageError
from nsight_prof.parsers.nsys.trace import open_trace

TELLS = """
import json, os, sys
with open(os.environ["PROF_RESULTS"], "w") as out:
    print(json.dumps({"record": "case", "args": sys.argv[1:]}), file=out)
    if "--fail" in sys.argv:
        out.write('{"record": "ca')
print("told", file=sys.stderr)
sys.exit(3 if "--fail" in sys.argv else 0)
"""
# Stands in for targets/under_torch_profiler.py, without torch.
WRAPPER = """
import gzip, json, runpy, sys
cut = sys.argv.index("--")
options, script = sys.argv[1:cut], sys.argv[cut + 1:]
sys.argv = script
if "--lazy" not in script:
    with gzip.open(options[options.index("--out") + 1], "wt") as out:
        json.dump({"options": options[2:], "script": script}, out)
runpy.run_path(script[0], run_name="__main__")
"""


@pytest.fixture
def seen(lab: Any) -> Any:
    """A lab with a wrapper in place of the torch profiler's."""
    wrapper = lab.folder / "wrapper.py"
    wrapper.write_text(WRAPPER)
    lab.monkeypatch.setattr(program, "TORCH_PROFILER", wrapper)
    lab.monkeypatch.setattr(program, "VALUE_PROFILER", wrapper)
    return lab


def told(lab: Any, step: str) -> Any:
    """What the program told in a step."""
    text = (lab.out / "steps" / step / "result.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def profiled(lab: Any, step: str = "4-operators", file: str = "operators.json.gz") -> Any:
    """What the wrapper was asked to do."""
    with gzip.open(lab.out / "steps" / step / file) as stream:
        return json.load(stream)


def whole(lab: Any, script: str = TELLS, **changes: Any) -> Any:
    """A recipe with all steps of a profiled program."""
    keys = {"untraced__enabled": True, "operators__enabled": True, **changes}
    return lab.recipe(script, **keys)


def test_all_steps_run_in_order_and_each_gets_a_file_for_what_the_program_tells(
    seen: Any, watcher: Any
) -> None:
    watching = watcher()
    assert seen.run(whole(seen), progress=watching).exit_code == 0
    names = ["untraced", "trace", "select", "counters", "operators", "report"]
    assert watching.states == [(name, "done") for name in names]
    for step in ("0-untraced", "1-trace", "3-counters", "4-operators"):
        assert told(seen, step) == [{"record": "case", "args": []}]
    assert [argv[0] for argv in seen.calls()] == ["nsys", "ncu"]
    assert any(words.startswith("torch profiler: ") for words in watching.waited_for)


def test_the_program_runs_by_itself_before_it_is_traced(seen: Any) -> None:
    seen.run(whole(seen))
    record = seen.manifest.step("untraced")
    assert record.argv == [sys.executable, str(seen.folder / "target.py")]
    assert (record.directory, record.exit_code) == ("steps/0-untraced", 0)
    assert "told" in (seen.out / "steps/0-untraced/stderr.log").read_text()
    command = json.loads((seen.out / "steps/0-untraced/command.json").read_text())
    assert "steps/0-untraced" in command["environment"]["PROF_RESULTS"]


def test_each_step_may_have_arguments_of_its_own(seen: Any) -> None:
    recipe = whole(
        seen,
        target__args={"n": 1, "graphs": True},
        untraced__args={"repeats": 3},
        trace__args={"n": 2},
        counters__args={"n": 3, "graphs": None},
        operators__args={"eager": True},
    )
    seen.run(recipe)
    assert told(seen, "0-untraced")[0]["args"] == ["--n", "1", "--graphs", "--repeats", "3"]
    assert told(seen, "1-trace")[0]["args"] == ["--n", "2", "--graphs"]
    assert told(seen, "3-counters")[0]["args"] == ["--n", "3"]
    assert profiled(seen)["script"][1:] == ["--n", "1", "--graphs", "--eager"]
    assert seen.manifest.recipe["target"]["args"] == {"n": 1, "graphs": True}


def test_a_command_line_spells_the_arguments_of_a_step_as_it_likes() -> None:
    recipe = load_recipe("top-kernels", ["counters.args.output-tokens=2"])
    assert recipe.counters.args == {"output_tokens": 2}
    other = load_recipe("top-kernels", ["counters.args.n=2", "target.file=gemm.py"])
    assert other.counters.args == {}


def test_the_profiler_is_told_what_is_captured(seen: Any) -> None:
    seen.run(whole(seen, capture="profiler-api", counters__enabled=False))
    assert profiled(seen)["options"] == ["--capture", "profiler-api"]


def test_the_torch_profiler_cannot_begin_at_an_nvtx_range(seen: Any, watcher: Any) -> None:
    watching = watcher()
    seen.run(whole(seen, capture={"nvtx": "decode"}, counters__enabled=False), progress=watching)
    assert profiled(seen)["options"] == ["--capture", "all"]
    assert "cannot begin at the NVTX range decode" in watching.warnings[0]


def test_values_are_recorded_within_the_limits_of_the_recipe(seen: Any, watcher: Any) -> None:
    watching = watcher()
    keys: dict[str, Any] = {
        "operators__enabled": False,
        "untraced__enabled": False,
        "counters__enabled": False,
    }
    limits: dict[str, Any] = {
        "values__enabled": True,
        "values__operators": 50,
        "values__args": {"n": 2},
    }
    assert seen.run(whole(seen, **keys, **limits), progress=watching).exit_code == 0
    asked = profiled(seen, "5-values", "values.jsonl.gz")
    limit = ["--operators", "50", "--seconds", "20"]
    assert asked["options"] == ["--capture", "all", *limit]
    assert asked["script"][1:] == ["--n", "2"]
    assert told(seen, "5-values") == [{"record": "case", "args": ["--n", "2"]}]
    assert any(words.startswith("values: ") for words in watching.waited_for)


def test_only_what_a_limit_changes_is_recorded_again(seen: Any) -> None:
    keys: dict[str, Any] = {"counters__enabled": False, "values__enabled": True}
    seen.run(whole(seen, **keys))
    first = {record.name: record.id for record in seen.manifest.steps}
    seen.run(whole(seen, **keys, values__operators=50), resume=seen.out, out=None)
    again = {record.name: record.id for record in seen.manifest.steps}
    assert {name for name in first if first[name] != again[name]} == {"values", "report"}


def test_the_operators_alone_need_no_nsight(seen: Any) -> None:
    seen.monkeypatch.setattr("nsight_prof.orchestrator.run.machine.has_gpu", lambda: False)
    recipe = whole(seen, trace__enabled=False, counters__enabled=False, untraced__enabled=False)
    assert seen.run(recipe).exit_code == 0
    assert [step.name for step in seen.manifest.steps] == ["operators", "report"]
    assert seen.calls() == []


@pytest.mark.parametrize("step", ["untraced", "counters", "operators", "values"])
def test_a_step_that_fails_leaves_the_others_and_what_the_program_told(
    seen: Any, step: str
) -> None:
    args: dict[str, Any] = {"values__enabled": True, f"{step}__args": {"fail": True}}
    outcome = seen.run(whole(seen, **args))
    assert outcome.exit_code == 1
    assert "exit code" in outcome.errors[0].message
    assert len(outcome.errors) == 1
    assert outcome.report_path.is_file()
    states = {record.name: str(record.state) for record in seen.manifest.steps}
    assert states.pop(step) == "failed"
    assert set(states.values()) == {"done"}
    (kept,) = (seen.out / "steps").glob(f"*-{step}.failed-1")
    # Half a record is none.
    assert json.loads((kept / "result.jsonl").read_text())["args"] == ["--fail"]


def test_a_program_that_fails_says_why_in_its_own_words(seen: Any) -> None:
    script = (
        "import sys\n"
        "print('error: the model is gone\\n\\nhint: fetch it again', file=sys.stderr)\n"
        "sys.exit('--operate' in sys.argv)"
    )
    outcome = seen.run(whole(seen, script, operators__args={"operate": True}))
    assert outcome.errors[0].message == "the target says: the model is gone"
    assert outcome.errors[0].hint == "fetch it again"


def test_a_traced_program_that_fails_says_why_in_its_own_words(seen: Any) -> None:
    script = "import sys; sys.exit('error: the model is gone\\n\\nhint: fetch it again')"
    with pytest.raises(StepFailed, match="the model is gone") as caught:
        seen.run(seen.recipe(script))
    assert caught.value.hint.startswith("fetch it again\n")


def test_a_program_that_hangs_is_ended_and_the_run_goes_on(seen: Any, timeout_when: Any) -> None:
    script = "import sys, time; time.sleep(600 if '--hang' in sys.argv else 0)"
    recipe = whole(seen, script, untraced__args={"hang": True}, untraced__timeout=600)
    timeout_when((seen.out / "steps/0-untraced.partial/stdout.log").is_file)
    outcome = seen.run(recipe)
    assert "did not end within 600 s" in outcome.errors[0].message
    assert "untraced.timeout" in outcome.errors[0].hint
    assert seen.state("trace") == seen.state("operators") == "done"


def test_a_program_that_is_killed_is_named(seen: Any) -> None:
    script = "import os, sys; '--die' in sys.argv and os.kill(os.getpid(), 9)"
    outcome = seen.run(whole(seen, script, operators__args={"die": True}))
    assert "was killed (SIGKILL) under the torch profiler" in outcome.errors[0].message


def test_a_profiler_that_leaves_no_trace_is_a_failure(seen: Any) -> None:
    outcome = seen.run(whole(seen, operators__args={"lazy": True}))
    assert "left no trace" in outcome.errors[0].message
    assert seen.state("operators") == "failed"


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        (["python", "train.py", "--n", "1"], ["train.py", "--n", "1"]),
        (["/usr/bin/python3.12", "-u", "-X", "dev", "train.py"], ["train.py"]),
        (["python3", "-OO", "-Wignore", "train.py"], ["train.py"]),
    ],
)
def test_a_command_that_runs_a_script_goes_under_the_torch_profiler(
    lab: Any, command: list[str], rest: list[str]
) -> None:
    recipe = lab.recipe(target={"command": command})
    argv = program.operators_program(recipe, Path("out.json.gz")).argv
    place = argv.index(str(program.TORCH_PROFILER))
    assert list(argv[:place]) == command[: len(command) - len(rest)]
    assert list(argv[argv.index("--") + 1 :]) == rest


@pytest.mark.parametrize(
    "command",
    [["./app"], ["python", "-m", "train"], ["python", "-c", "pass"], ["torchrun", "a.py"]],
)
def test_what_is_no_script_cannot_and_the_other_steps_go_on(lab: Any, command: list[str]) -> None:
    recipe = lab.recipe(target={"command": command}, operators={"enabled": True})
    with pytest.raises(RecipeError, match="needs a Python script"):
        program.operators_program(recipe, Path("out.json.gz"))
    assert "# operators: not possible: torch's profiler needs" in render_dry_run(recipe, lab.out)


def test_the_reason_why_it_cannot_stands_in_the_manifest(lab: Any) -> None:
    recipe = lab.recipe(target={"command": ["sh", "-c", "true"]}, operators={"enabled": True})
    outcome = lab.run(recipe)
    assert outcome.exit_code == 2
    assert lab.state("operators") == "unsupported"
    assert lab.state("counters") == "done"
    assert "needs a Python script" in lab.manifest.step("operators").error


def test_the_dry_run_shows_every_command_with_the_arguments_of_its_step(lab: Any) -> None:
    recipe = whole(
        lab,
        target__args={"n": 1},
        trace__args={"n": 2},
        counters__args={"n": 3},
        operators__args={"n": 4},
        untraced__args={"n": 5},
        counters__tensor_dtypes=["bf16"],
    )
    text = render_dry_run(recipe, Path("runs/x"))
    heads = [line.split(":")[0] for line in text.splitlines() if re.match("# [a-z]", line)]
    assert heads == ["# untraced", "# trace", "# select", "# counters", "# operators", "# report"]
    blocks = dict(zip(heads, text.split("\n\n"), strict=True))
    for name, number in (("trace", 2), ("counters", 3), ("operators", 4), ("untraced", 5)):
        assert f"target.py --n {number}" in blocks[f"# {name}"]
        assert "PROF_RESULTS" in blocks[f"# {name}"]
    assert "--out runs/x/steps/4-operators/operators.json.gz" in blocks["# operators"]


def test_only_the_step_whose_arguments_changed_is_done_again(seen: Any, watcher: Any) -> None:
    seen.run(whole(seen))
    watching = watcher()
    again = whole(seen, operators__args={"steps": 2})
    seen.run(again, resume=seen.out, out=None, progress=watching)
    kept = {name for name, state in watching.states if state == "skipped"}
    assert kept == {"untraced", "trace", "select", "counters"}
    assert "operators.args" in seen.manifest.step("operators").rerun_reason
    assert profiled(seen)["script"][1:] == ["--steps", "2"]
    assert (seen.out / "steps/4-operators.replaced-1").is_dir()


def test_a_failed_step_is_done_by_a_resume(seen: Any, watcher: Any) -> None:
    script = "import os, sys; sys.exit(os.path.exists('broken') and '--probe' in sys.argv)"
    (seen.folder / "broken").touch()
    recipe = whole(seen, script, operators__args={"probe": True})
    assert seen.run(recipe).exit_code == 1
    (seen.folder / "broken").unlink()
    outcome = seen.run(recipe, resume=seen.out, out=None)
    assert outcome.exit_code == 0
    assert seen.state("operators") == "done"


def test_a_replay_takes_what_each_step_left(seen: Any) -> None:
    seen.run(whole(seen, trace__args={"n": 2}), out=seen.folder / "recorded")
    seen.log.unlink()
    recipe = whole(seen, trace__args={"n": 2})
    outcome = seen.run(recipe, replay=seen.folder / "recorded")
    assert outcome.exit_code == 0
    assert seen.calls() == []
    assert told(seen, "1-trace") == [{"record": "case", "args": ["--n", "2"]}]
    assert profiled(seen)["script"][1:] == []
    assert seen.state("untraced") == seen.state("operators") == "done"


def test_a_replay_with_other_arguments_of_a_step_is_refused(seen: Any) -> None:
    seen.run(whole(seen), out=seen.folder / "recorded")
    for number in (0, 2):
        recipe = whole(seen, counters__args={"n": number})
        with pytest.raises(UsageError, match="counters.args is") as caught:
            seen.run(recipe, replay=seen.folder / "recorded")
        assert "there" in caught.value.message


def test_arguments_that_come_to_the_same_replay(seen: Any) -> None:
    recorded = whole(seen, target__args={"n": 1}, trace__args={"fast": False})
    seen.run(recorded, out=seen.folder / "recorded")
    recipe = whole(seen, target__args={"n": 1}, trace__args={"n": 1, "other": None})
    assert seen.run(recipe, replay=seen.folder / "recorded").exit_code == 0


def test_a_recorded_run_without_a_step_replays_as_far_as_it_goes(seen: Any) -> None:
    seen.run(seen.recipe(TELLS), out=seen.folder / "recorded")
    outcome = seen.run(whole(seen), replay=seen.folder / "recorded")
    assert "has no untraced step" in outcome.errors[0].message
    assert outcome.report_path.is_file()
    assert seen.state("operators") == "unsupported"


def test_stages_with_names_reach_the_choice_of_kernels_and_keep_their_order(lab: Any) -> None:
    stages = {"late": "^decode$", "all others": ".*"}
    lab.run(lab.recipe(stages=stages, select__by_stage=True))
    assert list(lab.manifest.recipe["stages"].items()) == list(stages.items())
    assert lab.manifest.step("select").inputs["stages"] == json.dumps([*map(list, stages.items())])
    with open_trace(lab.out / "steps/1-trace/trace.sqlite", stages) as trace:
        assert set(trace.stages()["stage"]) - {"(all)", ""} <= set(stages)


def test_secrets_that_a_program_tells_are_masked(seen: Any) -> None:
    seen.monkeypatch.setenv("API_TOKEN", "s3cret-value-of-mine")
    script = "import os; open(os.environ['PROF_RESULTS'], 'w').write(os.environ['MINE'] + '\\n')"
    seen.run(whole(seen, script, target__env={"MINE": "${API_TOKEN}"}))
    for path in seen.out.rglob("*"):
        assert not path.is_file() or b"s3cret-value-of-mine" not in path.read_bytes()


def test_the_wrapper_that_prof_starts_is_there_and_explains_itself(tmp_path: Path) -> None:
    argv = (sys.executable, str(program.TORCH_PROFILER), "--help")
    out, err = tmp_path / "out", tmp_path / "err"
    finished = run_command(Command(argv, {"PATH": "/usr/bin"}, tmp_path, out, err, 60.0))
    assert finished.ok
    assert "--capture" in finished.tail


# Speaks, and does not go on until the watcher has heard what the step is to tell.
WAITS = """
import os, sys, time
print("layer 3 of 28,", os.environ["MINE"], file=sys.stderr, flush=True)
while not os.path.exists(os.environ["HEARD"]):
    time.sleep(0.02)
"""


@pytest.mark.parametrize(
    ("step", "line"),
    [
        ("untraced", "layer 3 of 28, [redacted]"),
        ("trace", "layer 3 of 28, [redacted]"),
        ("counters", "layer 3 of 28, [redacted]"),
        ("counters", "==PROF== Connected to process 1 (/usr/bin/python)"),
    ],
)
def test_a_watcher_sees_the_last_line_of_a_step_that_runs(
    lab: Any, watcher: Any, step: str, line: str
) -> None:
    heard = lab.folder / "heard"

    class Listener(watcher):  # type: ignore[misc]
        def doing(self, name: Any, part: str, detail: str) -> None:
            super().doing(name, part, detail)
            if name != step or detail == line:
                heard.touch()

        def started(self, name: Any, waits_for: Any) -> None:
            super().started(name, waits_for)
            heard.unlink(missing_ok=True)

    lab.monkeypatch.setenv("API_TOKEN", "s3cret-value-of-mine")
    listening = Listener()
    script = WAITS if "PROF" not in line else WAITS.replace("file=sys.stderr", "file=sys.stdout")
    env = {"MINE": "${API_TOKEN}", "HEARD": str(heard)}
    asked = whole(lab, script, operators__enabled=False, target__env=env)
    assert lab.run(asked, progress=listening).exit_code == 0
    assert f"{step}: {line}" in listening.details
    assert "s3cret" not in "".join(listening.details)
