"""The baseline with the fake vLLM: what is recorded of a point, and what happens when it fails."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.targets.serving import baseline
from tests.processes import wait_for_end

BASE = [
    *("--model", "qwen2.5-0.5b", "--experiments", "batch", "--batches", "2"),
    *("--batch-prompt", "32", "--batch-output", "5", "--repeats", "3"),
]
B2 = "batch/cuda-graphs/b2/p32/o5"

Run = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def fake(root: Path) -> dict[str, str]:
    """The environment in which the fake vLLM is found."""
    return {"PYTHONPATH": str(root / "tests" / "fakes" / "vllm_fake")}


@pytest.fixture
def run(tmp_path: Path, fake: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the baseline with the fake vLLM; returns the exit code and the records."""

    monkeypatch.setattr(baseline, "need", lambda *_: None)  # the worker alone finds the fake

    def go(*options: str, **environment: str) -> tuple[int, list[dict[str, Any]]]:
        for name, value in (fake | environment).items():
            monkeypatch.setenv(name, value)
        out = tmp_path / "records.jsonl"
        code = baseline.main([*BASE, "--out", str(out), *options])
        lines = out.read_text(encoding="utf-8").splitlines()
        return code, [json.loads(line) for line in lines]

    return go


def of_kind(records: list[dict[str, Any]], kind: str, **fields: Any) -> list[dict[str, Any]]:
    wanted = fields | {"record": kind}
    return [r for r in records if all(r.get(name) == value for name, value in wanted.items())]


def statuses(records: list[dict[str, Any]]) -> dict[str, str]:
    return {r["case"]: r["status"] for r in of_kind(records, "case")}


def test_a_point_has_the_times_of_its_requests_and_steps(run: Run) -> None:
    code, records = run(FAKE_VLLM_STEP_S="0.002")
    assert code == 0
    (case,) = of_kind(records, "case")
    requests, steps = of_kind(records, "request"), of_kind(records, "step")
    assert len(requests) == 3 * 2
    assert len(case["time"]["samples_s"]) == 3
    for repeat in (1, 2, 3):
        own = of_kind(requests, "request", repeat=repeat)
        seconds = case["time"]["samples_s"][repeat - 1]
        first = min(request["arrival_s"] for request in own)
        last = max(request["finish_s"] for request in own)
        # Both come from the same clock: from before the first request to the last token.
        assert last - first == pytest.approx(seconds, abs=2e-3)
        assert sum(step["tokens"] for step in of_kind(steps, "step", repeat=repeat)) == 2 * 5
        for request in own:
            assert len(request["token_times_s"]) == request["output_tokens"] == 5
            ttft = request["first_token_s"] - request["arrival_s"]
            assert request["token_times_s"][0] == pytest.approx(ttft, abs=1e-6)


def test_the_engine_its_phases_and_its_own_counters_are_recorded(run: Run) -> None:
    code, records = run("--tensor-parallel", "1", FAKE_VLLM_BLOCKS="100")
    assert code == 0
    (engine,) = of_kind(records, "engine")
    assert engine["model"] == "qwen2.5-0.5b"
    assert engine["mode"] == "cuda-graphs"
    names = [phase["name"] for phase in of_kind(records, "phase")]
    assert names == ["start engine", "warm-up", "measure", "end engine"]
    moments = [(phase["begin_s"], phase["end_s"]) for phase in of_kind(records, "phase")]
    assert sum(moments, ()) == tuple(sorted(sum(moments, ())))
    for totals in of_kind(records, "vllm_totals"):
        assert (totals["prompt_tokens"], totals["generation_tokens"]) == (2 * 32, 2 * 5)
    # The fullest the cache gets: two sequences of 36 tokens (the last token is never cached), or
    # of 37, in blocks of 16 tokens, that is 2 x 3 of 100 blocks.
    usage = [stats["kv_usage"] for stats in of_kind(records, "engine_stats")]
    assert max(usage) == pytest.approx(6 / 100, rel=0.02)


def test_each_repeat_has_prompts_of_its_own_and_a_run_again_the_same(
    run: Run, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    prompts = []
    for _ in range(2):
        calls.unlink(missing_ok=True)
        run(FAKE_VLLM_CALLS=str(calls))
        lines = calls.read_text(encoding="utf-8").splitlines()
        prompts.append([line for line in lines if "add_request" in line])
    assert prompts[0] == prompts[1]
    assert len(prompts[0]) == 2 * 4  # a warm-up and three repeats


def test_a_point_stops_after_its_time_but_not_before_one_repeat(run: Run) -> None:
    _, records = run("--point-time", "0.001", FAKE_VLLM_STEP_S="0.002")
    (case,) = of_kind(records, "case")
    assert (case["time"]["n"], case["time"]["stop"]) == (1, "time limit")


def test_out_of_memory_is_a_row_and_the_sweep_goes_on(run: Run) -> None:
    code, records = run("--batches", "1", "8", "2", FAKE_VLLM_OOM_BATCH="8")
    assert code == 0
    found = statuses(records)
    assert found == {
        B2.replace("b2", "b1"): "ok",
        B2.replace("b2", "b8"): "out-of-memory",
        B2: "ok",
    }


def test_an_engine_that_dies_is_started_again_for_the_points_that_are_left(run: Run) -> None:
    # Each point takes 4 x 5 steps and a step in advance: the engine dies in its second point.
    code, records = run("--batches", "1", "2", "3", FAKE_VLLM_DIE_AT="30")
    assert code == 0
    assert list(statuses(records).values()) == ["ok", "failed", "ok"]
    assert len(of_kind(records, "engine")) == 2


def test_a_batch_that_hangs_is_ended(run: Run) -> None:
    code, records = run("--point-timeout", "1", "--starts", "1", FAKE_VLLM_HANG_AT="3")
    assert code == 1
    assert statuses(records) == {B2: "failed"}


def test_requests_that_end_early_are_no_measurement(run: Run) -> None:
    code, records = run(FAKE_VLLM_SHORT="1")
    assert code == 1
    (case,) = of_kind(records, "case")
    assert case["status"] == "failed"
    assert "2 of 2 requests failed" in case["reason"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("import", "does not import"),
        ("oom", "out of GPU memory while starting"),
        ("no-gpu", "sees no CUDA device"),
    ],
)
def test_an_engine_that_does_not_start_is_told_with_a_hint(
    run: Run, capfd: pytest.CaptureFixture[str], kind: str, words: str
) -> None:
    code, records = run(FAKE_VLLM_FAIL=kind)
    assert code == 1
    assert statuses(records) == {}
    said = capfd.readouterr().err
    assert words in said
    assert "\n\nhint: " in said


def test_without_vllm_the_error_names_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(SystemExit) as ended:
        baseline.main([*BASE, "--out", str(tmp_path / "records.jsonl")])
    assert ended.value.code == 3
    said = capfd.readouterr().err
    assert sys.executable in said
    assert "target.python" in said


def test_a_worker_whose_driver_was_killed_ends_by_itself(
    root: Path, tmp_path: Path, fake: dict[str, str]
) -> None:
    out, calls = tmp_path / "records.jsonl", tmp_path / "calls"
    driver = subprocess.Popen(
        [sys.executable, root / "targets" / "serving" / "baseline.py", *BASE, "--out", out],
        env=os.environ | fake | {"FAKE_VLLM_HANG_AT": "2", "FAKE_VLLM_CALLS": str(calls)},
    )
    try:
        assert wait_for(lambda: out.exists() and '"engine"' in out.read_text(encoding="utf-8"))
        (worker,) = children(driver.pid)
        driver.send_signal(signal.SIGKILL)
        wait_for_end(worker)
    finally:
        driver.kill()
        driver.wait()


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    told = " ".join((task / "children").read_text(encoding="utf-8") for task in tasks)
    return [int(child) for child in told.split()]


def wait_for(condition: Callable[[], bool]) -> bool:
    """Wait; the limit of the test ends what never comes."""
    while not condition():
        time.sleep(0.02)
    return True
