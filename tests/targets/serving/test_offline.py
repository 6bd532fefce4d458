"""Runs offline.py as a user does, with a fake vLLM in place of the real one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers.serving.records import read_serving
from tests.forked import Forked, run

SMALL = ["--model", "qwen2.5-0.5b", "--prompt-tokens", "40", "--output-tokens", "6"]
B8 = "prefill-decode/b8/p40/o6"


class Target:
    """The target, its records and the calls that reached the fake."""

    def __init__(self, root: Path, tmp_path: Path) -> None:
        self._root, self.out = root, tmp_path / "result.jsonl"
        self._calls = tmp_path / "calls.jsonl"

    def command(self, *arguments: str) -> list[str]:
        return [str(self._root / "targets/serving/offline.py"), *arguments]

    def environment(self, **variables: str) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM", "HF_"))}
        return inherited | {
            "PYTHONPATH": str(self._root / "tests/fakes/vllm_fake"),
            "PROF_RESULTS": str(self.out),
            "FAKE_VLLM_CALLS": str(self._calls),
            **variables,
        }

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run(self.command(*SMALL, *arguments), self.environment(**variables))

    def records(self, kind: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.out.read_text().splitlines()]
        return [line for line in lines if line["record"] == kind]

    def calls(self, name: str) -> list[list[Any]]:
        if not self._calls.exists():
            return []
        lines = [json.loads(line) for line in self._calls.read_text().splitlines()]
        return [line for line in lines if line[0] == name]


@pytest.fixture
def target(root: Path, tmp_path: Path) -> Target:
    return Target(root, tmp_path)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_times_the_batch_without_and_with_the_profiler(target: Target) -> None:
    done = target.run("--repeats", "2", "--also-batches", "1", "8", "16")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)["cases"]
    assert [(c["case"].split("/")[1], c["traced"]) for c in shown] == [
        ("b8", False),
        ("b8", True),
        ("b1", False),
        ("b16", False),
    ]
    cases = target.records("case")
    assert [(c["case"], c["params"]["traced"], len(c["time"]["samples_s"])) for c in cases[:2]] == [
        (B8, False, 2),
        (B8, True, 1),
    ]
    assert cases[0]["params"]["prompt_tokens"] == 40
    steps = [s for s in target.records("step") if s["case"] == B8 and s["traced"]]
    assert [(s["index"], s["outputs"], s["tokens"]) for s in steps] == [(i, 8, 8) for i in range(6)]


def test_images_of_a_data_set_stand_before_the_text(target: Target, root: Path) -> None:
    pages = root / "targets/inference/datasets/pages"
    words = ("--model", "qwen2.5-vl-7b", "--batch", "2", "--dataset-root", str(pages))
    done = target.run(*words, "--samples", "1", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    places = (620 // 28) * (877 // 28) + 2  # between its beginning and its end
    assert {r["prompt_tokens"] for r in target.records("request")} == {places + 40}
    (_, given, _) = target.calls("LLM")[0]
    asked = {"limit_mm_per_prompt": {"image": 1, "video": 0}, "mm_processor_cache_gb": 0}
    assert asked.items() <= given.items()
    assert not Path(given["tokenizer"]).exists()  # what was made up is gone


def test_a_model_without_eyes_takes_no_images(target: Target) -> None:
    done = target.run("--images", "1")
    assert done.returncode == 1
    assert "only a model of the Qwen VL family gets made up" in done.stderr


def test_profiles_one_batch_only_and_each_step_of_it(target: Target) -> None:
    done = target.run("--repeats", "3")
    assert done.returncode == 0, done.stderr
    ranges = [name for _, name in target.calls("range")]
    decode = "execute_context_0(0)_generation_8(8)"
    assert ranges == ["execute_context_8(320)_generation_0(0)", *[decode] * 5]
    assert len(target.calls("start_profile")) == len(target.calls("stop_profile")) == 1
    assert len(target.calls("add_request")) == 8 * (2 + 3 + 1)  # warm-up, repeats, profiled


def test_moments_follow_each_other_and_add_up(target: Target) -> None:
    done = target.run("--repeats", "1", "--batch", "3", FAKE_VLLM_STEP_S="0.002")
    assert done.returncode == 0, done.stderr
    case = target.records("case")[0]
    (seconds,) = case["time"]["samples_s"]
    requests = [r for r in target.records("request") if not r["traced"]]
    steps = [s for s in target.records("step") if not s["traced"]]
    assert len(requests) == 3
    for request in requests:
        assert request["output_tokens"] == 6
        assert request["arrival_s"] <= request["first_token_s"] <= request["finish_s"]
        assert len(request["token_times_s"]) == 6
        last = request["arrival_s"] + request["token_times_s"][-1]
        assert last == pytest.approx(request["finish_s"], abs=1e-6)
        # vLLM's own moments lie inside of ours
        ours = request["first_token_s"] - request["arrival_s"]
        assert 0 < request["engine_ttft_s"] < ours + 1e-3
        assert request["engine_tpot_s"] >= 0.002
        assert 0 <= request["queue_s"] < ours
    assert sum(s["seconds"] for s in steps) <= seconds
    assert seconds >= 6 * 0.002
    assert sum(s["tokens"] for s in steps) == 18
    (total,) = [t for t in target.records("vllm_totals") if not t["traced"]]
    assert (total["prompt_tokens"], total["generation_tokens"]) == (120, 18)
    assert total["estimated_flops"] == 18_000
    assert total["seconds"] == pytest.approx(seconds, abs=1e-6)


def test_our_parsers_read_its_records(target: Target) -> None:
    assert target.run("--also-batches", "1").returncode == 0
    read = read_serving(target.out, "untraced")
    assert not read.problems
    assert {p.case.name for p in read.points} == {B8, "prefill-decode/b1/p40/o6"}
    assert [p.traced for p in read.points] == [False, True, False]
    frames = read.frames()
    assert len(frames["requests"]) == 8 * 4 + 3
    assert frames["engines"].iloc[0]["kv_blocks"] == 65536


def test_the_engine_is_made_for_the_batches(target: Target) -> None:
    done = target.run("--also-batches", "64", "--kv-cache-gib", "1.5", "--tensor-parallel", "2")
    assert done.returncode == 0, done.stderr
    ((_, arguments, environment),) = target.calls("LLM")
    assert arguments["max_num_seqs"] == 64
    assert arguments["max_model_len"] == 256  # 46 tokens, rounded up
    assert arguments["kv_cache_memory_bytes"] == 1.5 * 2**30
    assert arguments["tensor_parallel_size"] == 2
    assert arguments["load_format"] == "dummy"
    assert arguments["profiler_config"] == {"profiler": "cuda"}
    assert arguments["enable_prefix_caching"] is False
    assert "cudagraph_capture_sizes" not in arguments
    assert environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert environment["HF_HUB_OFFLINE"] == "1"
    (engine,) = target.records("engine")
    assert engine["mode"] == "cuda-graphs"
    assert engine["engine_process"] == "inline"
    assert engine["dummy_weights"] is True
    assert engine["model_config"]["hidden_size"] == 896


def test_eager_with_ranges_of_layers(target: Target) -> None:
    done = target.run("--mode", "eager", "--layer-ranges")
    assert done.returncode == 0, done.stderr
    ((_, arguments, _),) = target.calls("LLM")
    assert arguments["enforce_eager"] is True
    assert arguments["enable_layerwise_nvtx_tracing"] is True
    assert target.records("case")[0]["launch"] == "eager"


def test_an_engine_in_its_own_process_is_gone_afterwards(target: Target) -> None:
    done = target.run("--engine", "spawn")
    assert done.returncode == 0, done.stderr
    ((_, pid),) = target.calls("child")
    assert not alive(pid)
    assert target.calls("shutdown")


@pytest.mark.parametrize("variables", [{}, {"FAKE_VLLM_HANG_AT_EXIT": "1"}])
@pytest.mark.parametrize("fails", [{}, {"FAKE_VLLM_DIE_AT": "3"}])
def test_an_engine_of_several_ranks_lets_the_process_end(
    target: Target, variables: dict[str, str], fails: dict[str, str]
) -> None:
    done = target.run("--tensor-parallel", "2", **variables, **fails)
    assert done.returncode == len(fails), done.stderr
    assert bool(done.stdout) == (not fails)
    assert target.records("phase")[-1]["name"] == "end engine"


def test_an_engine_that_does_not_shut_down_is_killed(
    root: Path, target: Target, tmp_path: Path
) -> None:
    program = (
        "import multiprocessing, sys, time\n"
        "from targets.serving import ending\n"
        "class Stuck:\n"
        "    def close(self): time.sleep(3600)\n"
        "def work():\n"
        "    spawn = multiprocessing.get_context('spawn')\n"
        "    child = spawn.Process(target=time.sleep, args=(3600,))\n"
        "    child.start()\n"
        "    ending.close(Stuck())\n"
        "    print(child.is_alive())\n"
        "    return 3\n"
        "if __name__ == '__main__':\n"
        "    ending.CLOSE_S = 1\n"
        "    sys.exit(ending.run_to_the_end(work, True))\n"
    )
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "False\n"), done.stderr
    assert "did not shut down within 1 s" in done.stderr


@pytest.mark.parametrize(
    ("step", "statuses"),
    [
        (3, [(False, "failed")]),  # in the warm-up
        (14, [(False, "failed")]),
        (21, [(False, "ok"), (True, "failed")]),  # in the profiled batch
    ],
)
def test_a_dead_engine_is_told_and_what_was_measured_stays(
    target: Target, step: int, statuses: list[tuple[bool, str]]
) -> None:
    done = target.run("--engine", "spawn", "--repeats", "1", FAKE_VLLM_DIE_AT=str(step))
    assert done.returncode == 1
    assert "\nerror: a CUDA error while generating for a batch of 8: RuntimeError: CUDA error" in (
        done.stderr
    )
    assert "\n\nhint: " in done.stderr
    cases = target.records("case")
    assert [(c["params"]["traced"], c["status"]) for c in cases] == statuses
    assert "illegal memory access" in cases[-1]["reason"]
    assert not alive(target.calls("child")[0][1])


def test_another_batch_out_of_memory_is_a_row_and_not_a_failure(target: Target) -> None:
    done = target.run("--also-batches", "64", FAKE_VLLM_OOM_BATCH="32")
    assert done.returncode == 0, done.stderr
    last = target.records("case")[-1]
    assert (last["params"]["batch"], last["status"]) == (64, "out-of-memory")
    assert "14.00 GiB" in last["reason"]


def test_a_batch_that_would_preempt_is_not_timed(target: Target) -> None:
    done = target.run("--also-batches", "64", "2", FAKE_VLLM_BLOCKS="40")
    assert done.returncode == 0, done.stderr
    rows = {c["params"]["batch"]: c for c in target.records("case")}
    assert rows[64]["status"] == "unsupported"
    assert "640 tokens" in rows[64]["reason"]
    assert rows[2]["status"] == "ok"


def test_requests_that_end_early_are_a_failure(target: Target) -> None:
    done = target.run(FAKE_VLLM_SHORT="1")
    assert done.returncode == 1
    assert "ended after 5 of 6 tokens" in done.stderr
    assert {r["status"] for r in target.records("request")} == {"failed"}


def test_sigterm_ends_the_engine_too(target: Target) -> None:
    process = Forked(
        target.command(*SMALL, "--engine", "spawn"), target.environment(FAKE_VLLM_HANG_AT="2")
    )
    try:
        while not target.calls("add_request"):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.communicate()
        assert process.returncode == 128 + signal.SIGTERM
    finally:
        process.kill()
    assert not alive(target.calls("child")[0][1])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch", "0"], "not a whole number from 1 on"),
        (["--max-num-seqs", "4"], "--max-num-seqs 4 is less than a batch of 8"),
        (["--engine-args", "[1]"], "not a JSON object"),
        (["--gpu-memory-utilization", "1.2"], "a share above 0 and up to 1"),
        (["--also-batches", "x"], "not a whole number"),
    ],
)
def test_wrong_options_are_told_before_anything_starts(
    target: Target, arguments: list[str], said: str
) -> None:
    done = target.run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "hint: " in done.stderr
    assert not target.calls("LLM")


def test_records_that_cannot_be_written_are_told(target: Target) -> None:
    done = target.run("--out", "/nowhere/result.jsonl")
    assert done.returncode == 1
    assert "error: the records cannot be written" in done.stderr
