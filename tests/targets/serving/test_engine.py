"""The engine adapter against a fake vLLM, in processes of its own: vLLM is imported once only."""

import json
import os
import re
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.targets.serving import failures, hooks
from nsight_prof.targets.serving.failures import explain, explain_log
from nsight_prof.targets.serving.generation import run_batch
from nsight_prof.targets.serving.models import find_model
from nsight_prof.targets.serving.options import EngineOptions, add_engine_arguments, engine_options
from tests import forked

PROGRAM = """
import json, sys
from dataclasses import asdict
from nsight_prof.targets.serving.engine import EngineOptions, make_engine
from nsight_prof.targets.serving.failures import EngineFailure
engine, told = None, {}
try:
    engine = make_engine(EngineOptions(**{"model": "qwen2.5-0.5b"} | json.loads(sys.argv[1])))
    told["facts"] = engine.facts()
    told["before"] = engine.metrics()
    seen = []
    for batch, prompt, output in json.loads(sys.argv[2]):
        told["generation"] = asdict(engine.generate(batch, prompt, output, 0, seen.append))
    told["after"] = engine.metrics()
    told["seen"] = [asdict(step) for step in seen]
except EngineFailure as failure:
    told["failure"] = dict(vars(failure))
finally:
    if engine is not None:
        engine.close()
        engine.close()
print(json.dumps(told))
"""


def run(
    root: Path, options: dict[str, Any], batches: Sequence[Sequence[int]] = (), **variables: Any
) -> dict[str, Any]:
    """Start the engine, generate, and return what the program tells."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM", "HF_"))}
    path = {"PYTHONPATH": f"{root / 'tests/fakes/vllm_fake'}{os.pathsep}{root}"}
    argv = ["-c", PROGRAM, json.dumps(options), json.dumps(batches)]
    done = forked.run(argv, inherited | path | variables)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_tells_how_the_engine_was_made(root: Path) -> None:
    told = run(root, {"capture_sizes": [1, 4], "attention_backend": "TRITON_ATTN", "seed": 3})
    facts = told["facts"]
    assert facts["version"] == "0.20.2"
    assert facts["dtype"] == "bfloat16"
    assert facts["capture_sizes"] == [1, 4]
    assert facts["attention_backend"] == "TRITON_ATTN"
    assert facts["max_model_len"] == 32768
    assert (facts["kv_blocks"], facts["block_size"]) == (65536, 16)
    assert facts["kv_bytes"] is None  # the fake does not tell, and nobody asked for a size
    assert facts["start_s"] > 0
    assert facts["args"]["seed"] == 3
    assert facts["model_config"]["num_hidden_layers"] == 24


def test_a_long_prompt_is_prefilled_in_parts(root: Path) -> None:
    told = run(root, {"max_num_batched_tokens": 64}, [[2, 100, 3]])
    generation = told["generation"]
    # 200 prompt tokens at 64 a step: three steps give nothing or one token, then both run
    assert sum(step["tokens"] for step in generation["steps"]) == 6
    assert generation["steps"][0]["outputs"] == 0
    assert [r["output_tokens"] for r in generation["requests"]] == [3, 3]
    assert all(len(r["token_times_s"]) == 3 for r in generation["requests"])
    assert generation["end_s"] > generation["begin_s"] > 0
    assert told["seen"] == generation["steps"]


def test_metrics_are_those_of_vllm_by_name(root: Path) -> None:
    told = run(root, {}, [[2, 10, 4]])
    assert told["before"]["vllm:generation_tokens"] == 0
    assert told["after"]["vllm:generation_tokens"] == 8
    assert told["after"]["vllm:prompt_tokens"] == 20
    assert told["after"]["vllm:engine_sleep_state"] == 1.0  # summed over its labels
    assert "vllm:request_prompt_tokens" not in told["after"]  # a histogram has no value


def test_a_version_without_statistics_has_no_metrics(root: Path) -> None:
    told = run(root, {}, [[1, 5, 2]], FAKE_VLLM_NO_HOOK="get_metrics,enable_mfu_metrics")
    assert told["before"] == told["after"] == {}
    assert told["facts"]["missing_hooks"][0].startswith("enable_mfu_metrics")
    assert told["generation"]["requests"][0]["status"] == "ok"


def test_prompts_without_types_where_the_version_has_none(root: Path) -> None:
    told = run(root, {}, [[1, 5, 2]], FAKE_VLLM_NO_HOOK="tokens_input")
    assert told["generation"]["requests"][0]["status"] == "ok"


@pytest.mark.parametrize("process", ["inline", "spawn"])
@pytest.mark.parametrize(
    ("fails", "status", "message", "hint"),
    [
        ("oom", "out-of-memory", "out of GPU memory while starting", "nvidia-smi"),
        ("no-kv", "out-of-memory", "no GPU memory for the KV cache", "--gpu-memory-utilization"),
        ("small-kv", "out-of-memory", "too small for one sequence", "--max-model-len"),
        ("busy", "out-of-memory", "other programs hold the GPU's memory", "nvidia-smi"),
        ("no-gpu", "failed", "sees no CUDA device", "CUDA_VISIBLE_DEVICES"),
        ("no-model", "failed", "does not find the model", "hub name"),
        ("died", "failed", "AssertionError: the block table has no room", "traceback"),
        ("killed", "failed", "died while starting", "host memory"),
        ("import", "unsupported", "does not import", "another torch"),
    ],
)
def test_failures_at_start(
    root: Path, process: str, fails: str, status: str, message: str, hint: str
) -> None:
    failure = run(root, {"process": process}, FAKE_VLLM_FAIL=fails)["failure"]
    assert failure["status"] == status
    assert message in failure["message"]
    assert hint in failure["hint"]
    assert "\n" not in failure["message"]


@pytest.mark.parametrize(
    ("options", "variables", "message"),
    [
        ({}, {"FAKE_VLLM_VERSION": "0.11.2"}, "vLLM 0.11.2 of .* is too old"),
        ({"profiler": True}, {"FAKE_VLLM_NO_HOOK": "profiler_config"}, "argument profiler_config"),
        ({"profiler": True}, {"FAKE_VLLM_NO_HOOK": "start_profile"}, "no LLM.start_profile"),
        ({"kv_cache_gib": 1}, {"FAKE_VLLM_NO_HOOK": "kv_cache_memory_bytes"}, "kv_cache_memory"),
        ({}, {"FAKE_VLLM_NO_HOOK": "step"}, "no LLM.llm_engine.step"),
        ({"extra": {"flux": 1}}, {}, "lacks the argument flux"),
        ({"layer_ranges": True}, {}, "ranges of layers are there in eager mode alone"),
    ],
)
def test_what_this_version_lacks_is_named(
    root: Path, options: dict[str, Any], variables: dict[str, str], message: str
) -> None:
    failure = run(root, options, (), **variables)["failure"]
    assert failure["status"] == "unsupported"
    assert re.search(message, failure["message"])


@pytest.mark.parametrize("version", ["0.20.0", "0.21.0rc1.dev3+gabc", "1.0", "dev", "0.0.1"])
def test_later_versions_and_builds_of_a_checkout_are_taken(root: Path, version: str) -> None:
    assert run(root, {}, FAKE_VLLM_VERSION=version)["facts"]["version"] == version


def test_too_long_a_request_leaves_the_engine_alive(root: Path) -> None:
    failure = run(root, {"max_model_len": 64}, [[1, 60, 4], [1, 60, 5]])["failure"]
    assert failure["status"] == "unsupported"
    assert failure["dead"] is False


@pytest.mark.parametrize("process", ["inline", "spawn"])
def test_failures_while_generating(root: Path, process: str) -> None:
    options = {"process": process}
    memory = run(root, options, [[4, 8, 2]], FAKE_VLLM_OOM_BATCH="4")["failure"]
    assert memory["status"] == "out-of-memory"
    assert memory["dead"] is True
    assert "batch of 4" in memory["message"]
    crash = run(root, options, [[4, 8, 2]], FAKE_VLLM_DIE_AT="2")["failure"]
    assert crash["status"] == "failed"
    assert "illegal memory access" in crash["message"]


def test_an_interpreter_without_vllm(capsys: pytest.CaptureFixture[str]) -> None:
    assert find_spec("vllm") is None, "this test needs an interpreter without vLLM"
    with pytest.raises(SystemExit) as caught:
        hooks.import_vllm()
    assert caught.value.code == 3
    assert "has no module vllm" in capsys.readouterr().err


def test_options_of_the_command_line() -> None:
    parser = ArgumentParser()
    add_engine_arguments(parser, without=("mode",))
    words = "--model m --engine spawn --kv-cache-gib 2 --capture-sizes 1 8 --nvtx-scopes"
    given = parser.parse_args([*words.split(), "--engine-args", '{"max_loras": 2}'])
    assert not hasattr(given, "mode")
    assert engine_options(given, mode="eager", profiler=True) == EngineOptions(
        model="m",
        process="spawn",
        kv_cache_gib=2.0,
        capture_sizes=(1, 8),
        nvtx_scopes=True,
        extra={"max_loras": 2},
        mode="eager",
        profiler=True,
    )
    assert engine_options(parser.parse_args([])) == EngineOptions()


def test_arguments_that_nobody_chose_are_left_to_vllm() -> None:
    arguments = hooks.engine_arguments(EngineOptions(), find_model("qwen2.5-0.5b"))
    assert not {"max_model_len", "max_num_seqs", "attention_backend", "profiler_config"} & set(
        arguments
    )
    extra = hooks.engine_arguments(EngineOptions(extra={"seed": 9}), find_model("qwen2.5-0.5b"))
    assert extra["seed"] == 9


class Broken:
    """An engine that fails in its second step."""

    def __init__(self) -> None:
        self.added: list[str] = []
        self.aborted: list[str] = []

    def add_request(self, name: str, prompt: Any, params: Any) -> None:
        self.added.append(name)

    def has_unfinished_requests(self) -> bool:
        return True

    def step(self) -> list[Any]:
        raise RuntimeError("no step")

    def abort_request(self, names: list[str]) -> None:
        self.aborted += names


def test_what_fails_takes_its_requests_back() -> None:
    engine = Broken()
    prompts = [{"prompt_token_ids": [1, 2]}] * 3
    with pytest.raises(RuntimeError, match="no step"):
        run_batch(engine, prompts, None, 4, "x", 0.0)
    assert engine.aborted == engine.added == ["x-0", "x-1", "x-2"]


def test_the_cause_of_a_cause_is_found() -> None:
    error = RuntimeError("failed")
    error.__cause__ = ValueError(
        "Free memory on device cuda:0 (1/2 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 2 GiB)."
    )
    assert explain(error).message.startswith("other programs hold the GPU's memory")


def test_the_last_known_words_of_a_log_are_its_cause() -> None:
    log = (
        "(Worker_TP1 pid=9) ERROR 11-22 00:10:17 [multiproc_executor.py:822] ValueError: no room\n"
        "(EngineCore pid=8) ERROR 11-22 00:10:17 [core.py:1136] Exception: WorkerProc "
        "initialization failed due to an exception in a background process.\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    failure = explain_log(log)
    assert failure is not None
    assert failure.message.endswith("ValueError: no room")
    assert explain_log("INFO 11-22 00:10:17 [core.py:109] Initializing a V1 LLM engine\n") is None


def test_every_known_failure_formats_its_message() -> None:
    for pattern, status, message, hint in failures.KNOWN:
        assert status in {"out-of-memory", "failed", "unsupported"}
        assert hint, pattern
        assert message.format("name", doing="starting", engine="vLLM")


def test_what_children_say_is_passed_on_and_remembered() -> None:
    program = (
        "import os, subprocess, sys\n"
        "from nsight_prof.targets.serving.child_log import ChildLog\n"
        "log = ChildLog()\n"
        "os.write(2, b'x' * 300_000)\n"
        "subprocess.run([sys.executable, '-c', 'import sys; sys.stderr.write(\"last words\")'])\n"
        "said = log.settle()\n"
        "os.write(2, b'|after')\n"
        "assert len(said) == 256 * 1024 and said.endswith('xlast words'), said[-20:]\n"
        "assert log.settle() == said\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stderr == b"x" * 300_000 + b"last words|after"
