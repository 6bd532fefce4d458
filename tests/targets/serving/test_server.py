"""A load test from end to end, against a stand-in for vLLM's server."""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.targets.serving.healthy import GpuMemory, Server, free_port, members
from nsight_prof.targets.serving.models import CONFIGS
from nsight_prof.targets.serving.serve_command import joined
from nsight_prof.targets.serving.word_tokenizer import has_tokenizer, write_word_tokenizer
from tests.forked import Forked
from tests.processes import wait_for_end

SMALL = (
    "--model qwen2.5-0.5b --prompt-tokens 16 --output-tokens 8 --min-requests 6",
    "--concurrency 1 4 --open-time 0.5 --scrape-interval 0.05",
)
Records = dict[str, list[dict[str, Any]]]
Start = Callable[..., Forked]


@pytest.fixture
def start(root: Path, tmp_path: Path) -> Start:
    """Start the target with a stand-in that has a fault; its records go to tmp_path/out.jsonl.

    The folder of the model has a vocabulary for which a tokenizer is made in no time.
    """
    config = json.loads((CONFIGS / "qwen2.5-0.5b" / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "qwen2.5-0.5b").mkdir()
    small = json.dumps(config | {"vocab_size": 512, "eos_token_id": 511})
    (tmp_path / "qwen2.5-0.5b" / "config.json").write_text(small, encoding="utf-8")

    def started(
        *words: str, fault: str = "", fake: str = "vllm_server", rate: str = "40"
    ) -> Forked:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
        env |= {"PYTHONPATH": str(root / "tests" / "fakes" / fake), "FAKE_VLLM": fault}
        script = root / "targets" / "serving" / "server.py"
        argv = [str(script), "--out", str(tmp_path / "out.jsonl")]
        argv += " ".join(SMALL).split()
        argv += [*(("--rate", rate) if rate else ()), *words]
        return Forked(argv, env, tmp_path)

    return started


def records(path: Path) -> Records:
    found: Records = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        found.setdefault(record["record"], []).append(record)
    return found


def port_of(log: str) -> int:
    match = re.search(r"port=(\d+)", log)
    assert match is not None, log
    return int(match[1])


def nobody_listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_load_test_from_end_to_end(start: Start, tmp_path: Path) -> None:
    process = start()
    _, log = process.communicate()
    assert process.returncode == 0, log
    found = records(tmp_path / "out.jsonl")
    names = ["closed/c1/p16/o8", "closed/c4/p16/o8", "open/r40/p16/o8"]
    assert [case["case"] for case in found["case"]] == names
    counts = dict(zip(names, (6, 12, 20), strict=True))
    for case, totals in zip(found["case"], found["vllm_totals"], strict=True):
        name, count = case["case"], counts[case["case"]]
        mine = [one for one in found["request"] if one["case"] == name]
        assert (case["status"], case["reason"]) == ("ok", "")
        assert [one["request"] for one in mine] == list(range(count))
        assert {one["output_tokens"] for one in mine} == {8}
        # A client that waited for its turn on a busy machine reads all tokens of a request at once.
        assert all(one["arrival_s"] < one["first_token_s"] <= one["finish_s"] for one in mine)
        assert all(len(one["token_times_s"]) == 8 for one in mine)
        # The client and the server agree on how much there was, and the span covers all of it.
        assert (totals["requests"], totals["generation_tokens"]) == (count, 8 * count)
        span = max(one["finish_s"] for one in mine) - min(one["arrival_s"] for one in mine)
        assert case["time"]["samples_s"][0] >= span - 1e-3
        assert totals["ttft_mean_s"] > 0
    engine = found["engine"][0]
    expected = {"version": "0.20.2", "max_model_len": 4096, "kv_blocks": 100, "block_size": 16}
    expected |= {"engine_process": "server", "dummy_weights": True, "dtype": "bfloat16"}
    assert {name: engine[name] for name in expected} == expected
    during = [stats for stats in found["engine_stats"] if stats["case"] == names[-1]]
    # Before and after each point, and between them as often as the machine allows.
    assert len(found["engine_stats"]) > 2 * len(names)
    assert during[-1]["generation_tokens"] - during[0]["generation_tokens"] == 160
    phases = [phase["name"] for phase in found["phase"]]
    assert phases == ["start engine", "warm-up", *["measure"] * 3, "end engine"]
    assert nobody_listens(port_of(log))
    assert list(tmp_path.glob("prof-serve-*")) == []


def test_requests_of_a_file_and_of_a_trace(start: Start, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        '{"text": "one two three", "output_length": 5}\n'
        '{"messages": [{"role": "user", "content": "four five"}], "output_length": 3}\n'
    )
    process = start("--filelist", str(prompts), "--only", "closed/c1")
    _, log = process.communicate()
    assert process.returncode == 0, log
    found = records(tmp_path / "out.jsonl")
    (case,) = found["case"]
    assert case["case"] == "closed/c1/prompts.jsonl"
    assert (case["params"]["requests_of"], case["params"]["output_tokens"]) == ("prompts.jsonl", 4)
    sizes = [(one["prompt_tokens"], one["output_tokens"]) for one in found["request"]]
    assert sizes == [(3, 5), (2, 3)] * 3
    trace = tmp_path / "trace.jsonl"
    lengths = (16, 16, 4096, 16, 16)  # of five requests one is longer than --max-model-len
    rows = [
        {"timestamp": 300 * (n - (n > 2)), "input_length": length, "output_length": 2}
        for n, length in enumerate(lengths)
    ]
    trace.write_text("\n".join(map(json.dumps, rows)))
    process = start("--filelist", str(trace), "--time-scale", "0.5", "--max-model-len", "2048")
    _, log = process.communicate()
    assert process.returncode == 0, log
    found = records(tmp_path / "out.jsonl")
    (case,) = found["case"]
    assert (case["case"], case["params"]["arrivals"]) == ("open/trace/trace.jsonl", "trace")
    assert case["params"]["too_long"] == 1
    assert "1 of 5 requests of trace.jsonl are left out" in log
    came = [one["arrival_s"] for one in found["request"]]
    gaps = [later - earlier for earlier, later in itertools.pairwise(came)]
    assert gaps == pytest.approx([0.15] * 3)


def test_rates_follow_what_the_server_can_do(start: Start, tmp_path: Path) -> None:
    process = start("--rate-share", "0.2", "0.4", "--server-args", "--max-num-seqs 4", rate="")
    _, log = process.communicate()
    assert process.returncode == 0, log
    assert "'--max-num-seqs', '4'" in log
    cases = records(tmp_path / "out.jsonl")["case"]
    best = max(
        case["params"]["requests"] / case["time"]["median_s"]
        for case in cases
        if case["params"]["experiment"] == "closed"
    )
    rates = [case["params"]["request_rate"] for case in cases if "request_rate" in case["params"]]
    assert len(rates) == 2
    assert 0.15 < rates[0] / best < 0.26
    assert rates[1] > rates[0]


@pytest.mark.parametrize(
    ("fault", "words", "message", "hint"),
    [
        ("memory", (), "hold the GPU's memory", "--gpu-memory-utilization"),
        ("argument", (), "command line", "--server-args"),
        ("never", ("--start-timeout", "1"), "not healthy after 1 s", "--start-timeout"),
        ("rejects", (), "answers no request: HTTP 400", "--max-model-len"),
        ("", ("--only", "nothing"), "no point was chosen", "--list"),
    ],
)
def test_a_server_that_fails_is_told_and_ended(
    start: Start, fault: str, words: tuple[str, ...], message: str, hint: str
) -> None:
    port = free_port()  # a server that is given a second may not come to tell its own
    process = start(*words, "--port", str(port), fault=fault)
    _, log = process.communicate()
    assert process.returncode == 1
    assert re.search(rf"(?m)^error: .*{re.escape(message)}", log)
    assert hint in log.rpartition("hint: ")[2]
    assert nobody_listens(port)


@pytest.mark.parametrize("how", ["dies", "fades"])
def test_a_server_that_dies_leaves_what_was_measured(
    start: Start, tmp_path: Path, how: str
) -> None:
    process = start(fault=f"{how}-15")  # 5 answers of the warm-up, 6 of the first point
    _, log = process.communicate()
    assert process.returncode == 1
    assert "out of GPU memory while serving" in log.rpartition("error: ")[2]
    cases = records(tmp_path / "out.jsonl")["case"]
    assert [case["status"] for case in cases][0] == "ok"
    assert cases[-1]["status"] == "failed"
    assert "not measured: out of GPU memory" in cases[-1]["reason"]


def test_a_server_without_metrics_and_counts_is_measured(start: Start, tmp_path: Path) -> None:
    process = start(fault="bare")
    _, log = process.communicate()
    assert process.returncode == 0, log
    found = records(tmp_path / "out.jsonl")
    assert "engine_stats" not in found
    assert {totals["generation_tokens"] for totals in found["vllm_totals"]} == {None}
    assert all(one["status"] == "ok" for one in found["request"])
    assert all("token_times_s" not in one for one in found["request"])


def test_a_server_that_runs_already_is_measured_and_left(
    start: Start, root: Path, tmp_path: Path
) -> None:
    port = free_port()
    module = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    fake = Server(
        [*module, "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "4096"],
        os.environ | {"PYTHONPATH": str(root / "tests" / "fakes" / "vllm_server")},
    )
    with fake:
        while nobody_listens(port):
            assert not fake.ended
            time.sleep(0.05)
        process = start("--url", f"http://127.0.0.1:{port}/v1/", fake="nothing")
        _, log = process.communicate()
        assert process.returncode == 0, log
        assert not fake.ended
    found = records(tmp_path / "out.jsonl")
    assert [case["status"] for case in found["case"]] == ["ok"] * 3
    assert {case["params"]["model"] for case in found["case"]} == {"fake-1b"}
    (engine,) = found["engine"]
    # What only the one who started it knows stays unknown.
    told = {"model": "fake-1b", "served_by": "vllm", "mode": None, "dummy_weights": None}
    assert told.items() <= engine.items()
    process = start("--url", f"http://127.0.0.1:{port}", fake="nothing")
    _, log = process.communicate()
    assert process.returncode == 1
    assert f"error: no server answers at http://127.0.0.1:{port}" in log


def test_a_server_of_sglang_is_started_and_tells_of_itself(start: Start, tmp_path: Path) -> None:
    process = start("--engine", "sglang", "--rate", "0", fake="sglang_server")
    _, log = process.communicate()
    assert process.returncode == 0, log
    found = records(tmp_path / "out.jsonl")
    (engine,) = found["engine"]
    expected: dict[str, Any] = {"served_by": "sglang", "version": "0.5.11", "model": "qwen2.5-0.5b"}
    expected |= {"mode": "cuda-graphs", "dtype": "bfloat16", "dummy_weights": True}
    expected |= {"kv_blocks": 905717, "block_size": 1, "max_num_seqs": 4096}
    expected |= {"max_num_batched_tokens": 8192, "max_model_len": 4096, "prefix_caching": True}
    assert {name: engine[name] for name in expected} == expected
    assert "secret" not in (tmp_path / "out.jsonl").read_text()
    for totals, count in zip(found["vllm_totals"], (6, 12), strict=True):
        assert (totals["requests"], totals["generation_tokens"]) == (count, 8 * count)
        assert totals["ttft_mean_s"] > 0
        assert totals["tpot_mean_s"] is None  # SGLang has no such histogram
    assert {stats["waiting"] for stats in found["engine_stats"]} == {0}
    assert "start_profile" not in log


def test_a_running_server_of_sglang_tells_its_model_by_its_folder(
    start: Start, root: Path, tmp_path: Path
) -> None:
    port = free_port()
    module = [sys.executable, "-m", "sglang.launch_server", "--host", "127.0.0.1"]
    module += ["--port", str(port), "--context-length", "4096", "--served-model-name", "mine"]
    module += ["--model-path", str(root / "targets" / "serving" / "configs" / "qwen2.5-0.5b")]
    fakes = root / "tests" / "fakes" / "sglang_server"
    with Server(module, os.environ | {"PYTHONPATH": str(fakes)}) as fake:
        while nobody_listens(port):
            assert not fake.ended
            time.sleep(0.05)
        _, log = start("--url", f"http://127.0.0.1:{port}", fake="nothing").communicate()
    (engine,) = records(tmp_path / "out.jsonl")["engine"]
    expected = {"model": "mine", "served_by": "sglang", "mode": "cuda-graphs", "dtype": "bfloat16"}
    assert expected.items() <= engine.items(), log
    assert engine["model_config"]["hidden_size"] == 896


def test_the_points_alone_are_profiled(start: Start) -> None:
    words = ("--engine", "sglang", "--profile", "--rate", "0")
    process = start(*words, fake="sglang_server")
    _, log = process.communicate()
    assert process.returncode == 0, log
    said = [
        line.split("  ")[0] for line in log.splitlines() if "profile" in line or "closed" in line
    ]
    started = 'start_profile {"activities": ["CUDA_PROFILER"]}'
    assert said == [started, "closed/c1/p16/o8", "closed/c4/p16/o8", "stop_profile"]


def test_a_server_without_the_hooks_is_not_profiled(start: Start) -> None:
    process = start("--profile")
    _, log = process.communicate()
    assert process.returncode == 1
    assert "error: the server does not start its profiler" in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_with_its_children(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    process = start("--open-time", "60", fault="stubborn", rate="1")
    out = tmp_path / "out.jsonl"
    while not (out.is_file() and "closed/c4" in out.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, log = process.communicate()
    assert process.returncode == 128 + number
    assert f"ended by {number.name}" in log
    child = re.search(r"child (\d+)", log)
    assert child is not None
    wait_for_end(int(child[1]))
    assert nobody_listens(port_of(log))


def test_what_is_missing_is_told_before_anything_starts(
    start: Start, tmp_path: Path, root: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _, log = start("--port", str(port)).communicate()
        assert f"error: port {port} cannot be used" in log
        assert "leave --port away" in log
    _, log = start(fake="nothing").communicate()
    assert "has no module vllm" in log
    assert "target.python" in log
    _, log = start("--model", "/no/such/folder").communicate()
    assert re.search("error: .*/no/such/folder", log)
    assert not (tmp_path / "out.jsonl").exists()


def test_lists_its_points(start: Start) -> None:
    out, _ = start("--list", fake="nothing").communicate()
    assert out.split() == ["closed/c1/p16/o8", "closed/c4/p16/o8", "open/r40/p16/o8"]


def test_a_program_that_cannot_start_or_ends_is_told() -> None:
    with Server([sys.executable, "-c", "print('word'); raise SystemExit(3)"], os.environ) as server:
        while not server.ended:
            time.sleep(0.01)
        assert "exit code 3" in server.died("at once").message
        assert "word" in server.lines
    server.end()
    sleeper = Server([sys.executable, "-c", "import time; time.sleep(60)"], os.environ)
    sleeper.start()
    assert sleeper.ended == ""
    sleeper.end()
    assert "SIGTERM" in sleeper.ended


def test_finds_the_processes_of_a_group() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, start_new_session=True)
    assert members(child.pid) == [child.pid]
    child.communicate(b"\n")
    assert members(child.pid) == []
    assert free_port() > 0


class FakeNvml:
    """Tells what is in use: the given numbers one after another, then the last for ever."""

    def __init__(self, *used: int) -> None:
        self.used = list(used)

    def nvmlInit(self) -> None: ...  # noqa: N802

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> bytes:  # noqa: N802
        return uuid

    def nvmlDeviceGetMemoryInfo(self, _: bytes) -> Any:  # noqa: N802
        class Memory:
            used = self.used.pop(0) if len(self.used) > 1 else self.used[0]

        return Memory


def test_gpu_memory_that_stays_in_use_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    gib = 1 << 30
    assert GpuMemory(["GPU-1"], FakeNvml(gib, 90 * gib, gib + 1)).released(5.0)
    assert capsys.readouterr().err == ""
    assert not GpuMemory(["GPU-1"], FakeNvml(gib, 9 * gib)).released(0.0)
    assert "8.0 GiB more GPU memory are in use" in capsys.readouterr().err
    assert GpuMemory(["GPU-1"], object()).released(0.0)  # NVML cannot tell


@pytest.mark.parametrize(("eos", "end"), [(5, 5), ([9, 3], 9), (None, 99), (700, 99), (0, 0)])
def test_the_tokenizer_has_every_token_once(tmp_path: Path, eos: Any, end: int) -> None:
    write_word_tokenizer({"vocab_size": 100, "eos_token_id": eos}, tmp_path)
    made = json.loads((tmp_path / "tokenizer.json").read_text())
    words = made["model"]["vocab"]
    assert sorted(words.values()) == list(range(100))
    assert words["<eos>"] == end == made["added_tokens"][0]["id"]
    assert made["model"]["unk_token"] in words
    assert has_tokenizer(tmp_path)


def test_no_tokenizer_is_made_beside_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="vocab_size"):
        write_word_tokenizer({}, tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"config\.json"):
        write_word_tokenizer({"vocab_size": 9}, tmp_path)


def test_arguments_of_the_server_may_begin_with_dashes() -> None:
    assert joined(["--port", "1", "--server-args", "--enforce-eager"]) == [
        "--port",
        "1",
        "--server-args=--enforce-eager",
    ]
    assert joined(["--server-args"]) == ["--server-args"]
