"""recipes/vllm-kernels.yaml from its first step to its report, with a vLLM and tools of fakes."""

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.orchestrator.recipe.read import load_recipe
from nsight_prof.orchestrator.report import reporting
from nsight_prof.orchestrator.run import runner
from nsight_prof.orchestrator.run.dry_run import render_dry_run
from nsight_prof.parsers.errors import ProfError, StepFailed, ToolMissing

FAKES = Path(__file__).resolve().parent.parent / "fakes"
SMALL = (
    "target.args.model=qwen2.5-0.5b",
    "target.args.batch=2",
    "target.args.prompt_tokens=16",
    "target.args.output_tokens=4",
    "target.args.max_num_seqs=8",
    "untraced.args={repeats: 2, also_batches: [1, 4]}",
    "trace.args.nvtx_scopes=false",  # they need the package nvtx
)
NO_OPERATORS = ("operators.enabled=false",)
OPERATORS = ("operators.args.output_tokens=3", "target.env.FAKE_VLLM_TORCH=1")
PREFILL, DECODE = "execute_context_2(32)_generation_0(0)", "execute_context_0(0)_generation_2(2)"


@pytest.fixture
def vllm(lab: Any, no_pictures: None) -> Any:
    """A lab that traces engine steps and makes real reports."""
    lab.fake(FAKE_TRACE="vllm")
    lab.monkeypatch.setattr(runner, "make_report", reporting.make_report)
    return lab


def recipe(*overrides: str) -> Any:
    """The recipe, small, for the fake vLLM."""
    path = f"target.env.PYTHONPATH={FAKES / 'vllm_fake'}"
    return load_recipe("vllm-kernels", (*SMALL, path, *overrides))


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    """What the target told in a step."""
    lines = (folder / "result.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["record"] == kind]


def table(run: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(run / "tables" / f"{name}.parquet")


def test_the_recipe_runs_from_the_untraced_engine_to_the_report(vllm: Any) -> None:
    operators = NO_OPERATORS if find_spec("torch") is None else OPERATORS
    outcome = vllm.run(recipe(*operators))
    assert outcome.errors == ()
    assert outcome.exit_code == 0
    _each_step_has_its_own_arguments(vllm.out / "steps")
    _stages_have_their_names(vllm.out)
    if operators == OPERATORS:
        _operators_stand_in_their_steps(vllm.out / "steps/4-operators")
    report = outcome.report_path.read_text()
    for words in ("qwen2.5-0.5b", "prefill", "decode"):
        assert words in report
    _replays_the_same(vllm, report, operators)


def _each_step_has_its_own_arguments(steps: Path) -> None:
    untraced, traced = steps / "0-untraced", steps / "1-trace"
    cases = {record["case"] for record in records(untraced, "case")}
    assert cases == {f"prefill-decode/b{batch}/p16/o4" for batch in (1, 2, 4)}
    assert len(records(untraced, "engine")) == 1
    # Untraced: 2 repeats of the batch, each a prefill and 3 decode steps.
    plain = [step for step in records(untraced, "step") if not step["traced"]]
    assert sum("/b2/" in step["case"] for step in plain) == 2 * 4
    assert {step["traced"] for step in records(traced, "step")} == {False, True}
    # Under ncu the profiled batch alone.
    assert {step["traced"] for step in records(steps / "3-counters", "step")} == {True}


def _stages_have_their_names(run: Path) -> None:
    stages = table(run, "stages").set_index("stage")["launches"]
    assert dict(stages) == {"(all)": 6, "prefill": 2, "decode": 4}
    found = table(run, "engine_steps")
    assert list(found["kind"]) == ["prefill", "decode", "decode"]
    assert list(found["prefill_tokens"]) == [32, 0, 0]
    assert table(run, "host_steps").shape[0] > 0


def _operators_stand_in_their_steps(step: Path) -> None:
    (engine,) = records(step, "engine")
    assert engine["mode"] == "eager"
    assert len(records(step, "step")) == 3
    with gzip.open(step / "operators.json.gz", "rt") as stream:
        events = json.load(stream)["traceEvents"]
    names = [event.get("name") for event in events]
    assert (names.count(PREFILL), names.count(DECODE)) == (1, 2)
    assert names.count("aten::mm") == 3


def _replays_the_same(lab: Any, report: str, overrides: tuple[str, ...]) -> None:
    recorded, lab.out = lab.out, lab.folder / "again"
    lab.log.unlink()
    outcome = lab.run(recipe(*overrides), replay=recorded)
    assert outcome.exit_code == 0
    assert lab.calls() == []
    assert _without_folder(outcome.report_path.read_text()) == _without_folder(report)


def _without_folder(report: str) -> list[str]:
    """What a report says of the program: no name of the run, no commands, no seconds of a step."""
    lines = report.partition("\n## How far to trust this")[0].splitlines()
    return [line for line in lines if not line.startswith("<sub>Run ")]


@pytest.mark.parametrize(
    ("override", "message", "hint"),
    [
        ("target.env.PYTHONPATH=/nowhere", "has no module vllm", "target.python"),
        ("target.env.FAKE_VLLM_VERSION=0.9.1", "too old", "0.20"),
        ("target.env.FAKE_VLLM_NO_HOOK=start_profile", "has no LLM.start_profile", "version"),
        ("target.env.FAKE_VLLM_FAIL=oom", "out of GPU memory", "nvidia-smi"),
        ("target.env.FAKE_VLLM_FAIL=no-gpu", "sees no CUDA device", "CUDA_VISIBLE_DEVICES"),
        ("target.args.model=/no/such/model", "/no/such/model", "config"),
    ],
)
def test_what_vllm_cannot_do_is_told_by_the_run_and_what_it_told_is_kept(
    vllm: Any, override: str, message: str, hint: str
) -> None:
    with pytest.raises(ProfError, match=message) as caught:
        vllm.run(recipe(*NO_OPERATORS, override))
    error = caught.value
    assert isinstance(error, ToolMissing if "no-gpu" in override else StepFailed)
    assert hint in error.hint
    assert f"--resume {vllm.out}" in error.hint
    states = {step.name: str(step.state) for step in vllm.manifest.steps}
    assert (states["untraced"], states["trace"]) == ("failed", "failed")
    assert message in vllm.manifest.step("untraced").error
    for step in ("0-untraced", "1-trace"):
        kept = vllm.out / "steps" / f"{step}.failed-1"
        assert (kept / "stderr.log").is_file()
        assert records(kept, "conditions")


def test_an_engine_that_fails_under_ncu_alone_leaves_the_trace_and_a_report(lab: Any) -> None:
    outcome = lab.run(recipe(*NO_OPERATORS, "counters.args.max_num_seqs=1"))
    assert outcome.exit_code == 1
    assert "max-num-seqs" in outcome.errors[0].message
    states = {step.name: str(step.state) for step in lab.manifest.steps}
    assert states.pop("counters") == "failed"
    assert set(states.values()) == {"done"}
    assert outcome.report_path.is_file()


def test_the_dry_run_shows_four_commands_of_one_target(lab: Any) -> None:
    text = render_dry_run(recipe(), Path("runs/x"))
    commands = [line for line in text.splitlines() if "serving/offline.py" in line]
    assert len(commands) == 4
    assert all("--model qwen2.5-0.5b" in command for command in commands)
    assert "under_torch_profiler.py" in commands[3]
    assert "--mode eager" in commands[3]
    assert "--capture-range=cudaProfilerApi" in text
    assert "--cuda-graph-trace=node" in text
