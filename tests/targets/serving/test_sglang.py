"""What differs where the server is SGLang's: 0.5.11, of which tests/fixtures/sglang has answers."""

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers.names.ranges import ENGINE_STEP
from nsight_prof.targets.serving import scrape, server_log, sglang_launch, sglang_server
from nsight_prof.targets.serving.answers import Answer, read
from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.models import find_model
from nsight_prof.targets.serving.options import EngineOptions


@pytest.fixture(scope="module")
def answers(root: Path) -> Path:
    return root / "tests" / "fixtures" / "sglang"


def test_the_settings_of_a_server_are_read(answers: Path) -> None:
    info = json.loads((answers / "server_info.json").read_text())
    facts = sglang_server.facts(info, find_model("qwen2.5-7b").config or {})
    # What the KV cache holds times the bytes of a token of that shape: 28 layers, keys and values
    # of 4 heads of 128 in 16 bits. SGLang tells the size in hundredths of a GiB.
    assert facts["kv_bytes"] == pytest.approx(facts["kv_blocks"] * 28 * 2 * 4 * 128 * 2, abs=2**23)
    assert facts["capture_sizes"][-1] == 32
    assert (facts["version"], facts["dtype"]) == ("0.5.11", "bfloat16")
    assert None not in facts.values()


def test_the_metrics_of_a_server_are_read_by_their_likes(answers: Path) -> None:
    after = scrape.parse((answers / "metrics.txt").read_text())
    assert scrape.stats(after) == {
        "running": 3,
        "waiting": 0,
        "kv_usage": pytest.approx(523 / 905717, rel=1e-6),  # tokens in use, of all
        "preemptions": None,
        "prompt_tokens": 52493,
        "generation_tokens": 5808,
    }
    totals = scrape.totals(dict.fromkeys(after, 0.0), after)
    assert (totals["requests"], totals["prefix_hit_tokens"]) == (208, 3)
    assert 0 < totals["queue_mean_s"] < totals["ttft_mean_s"] < totals["e2e_mean_s"]
    assert {name for name, value in totals.items() if value is None} == {
        *("preemptions", "tpot_mean_s", "prefill_mean_s", "decode_mean_s"),
        *("estimated_flops", "estimated_read_bytes", "estimated_write_bytes"),
    }


def test_the_answers_of_a_server_are_read(answers: Path) -> None:
    pieces = [(1.0, (answers / "completion.txt").read_bytes())]
    reading = read(Answer(0, 0.0, 0.0, 200, pieces))
    assert (reading.reason, reading.prompt_tokens, reading.output_tokens) == ("", 4, 4)
    assert len(reading.times or ()) == 4
    refused = read(Answer(0, 0.0, 0.0, 400, [(1.0, (answers / "too-long.json").read_bytes())]))
    assert refused.reason.startswith("HTTP 400: The input (4999 tokens) is longer than the model's")


def test_models_that_it_cannot_import_are_not_why_it_ended(answers: Path) -> None:
    lines = (answers / "out-of-memory.log").read_text().splitlines()
    failure = server_log.why(lines, "the server was killed by SIGKILL", engine="SGLang")
    assert failure.message.startswith("out of GPU memory while starting: ")
    assert failure.status == "out-of-memory"


def batch(requests: int, *, decode: bool, tokens: int = 0, decoding: int = 0) -> Any:
    """A batch of SGLang's scheduler as its step gets it (srt/managers/schedule_batch.py)."""
    return types.SimpleNamespace(
        reqs=[None] * requests,
        forward_mode=types.SimpleNamespace(is_decode=lambda: decode),
        decoding_reqs=[None] * decoding if decoding else None,
        extend_num_tokens=tokens,
    )


@pytest.mark.parametrize(
    ("step", "counts"),
    [
        (batch(3, decode=False, tokens=300), (3, 300, 0, 0)),
        (batch(8, decode=True), (0, 0, 8, 8)),
        (batch(5, decode=False, tokens=104, decoding=4), (1, 100, 4, 4)),  # --enable-mixed-chunk
    ],
)
def test_a_step_has_the_range_that_traces_are_read_by(step: Any, counts: tuple[int, ...]) -> None:
    match = ENGINE_STEP.fullmatch(sglang_launch.name(step))
    assert match is not None
    assert tuple(map(int, match.groups())) == counts


def test_the_ranges_are_put_where_a_spawned_process_runs_the_script(tmp_path: Path) -> None:
    """The spawned scheduler takes steps within ranges; the process that spawned it does not."""
    scheduler = tmp_path / "sglang" / "srt" / "managers"
    scheduler.mkdir(parents=True)
    (scheduler / "scheduler.py").write_text(
        "import types\n"
        "class Scheduler:\n"
        "    def run_batch(self, batch):\n"
        "        print('step', flush=True)\n"
        "def steps():\n"
        "    mode = types.SimpleNamespace(is_decode=lambda: True)\n"
        "    Scheduler().run_batch(types.SimpleNamespace(reqs=[1, 2], forward_mode=mode))\n"
    )
    (tmp_path / "sglang" / "launch_server.py").write_text(
        "import multiprocessing\n"
        "from sglang.srt.managers.scheduler import steps\n"
        "steps()\n"
        "process = multiprocessing.get_context('spawn').Process(target=steps)\n"
        "process.start()\n"
        "process.join()\n"
    )
    (tmp_path / "torch.py").write_text(
        "import contextlib, types\n"
        "@contextlib.contextmanager\n"
        "def range_(name):\n"
        "    print('begin', name, flush=True)\n"
        "    yield\n"
        "    print('end', flush=True)\n"
        "cuda = types.SimpleNamespace(nvtx=types.SimpleNamespace(range=range_))\n"
    )
    ran = subprocess.run(
        [sys.executable, str(sglang_server.LAUNCHER)],
        env={"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout.splitlines() == [
        "step",
        "begin execute_context_0(0)_generation_2(2)",
        "step",
        "end",
    ], ran.stderr


def test_options_have_the_words_of_sglang(tmp_path: Path) -> None:
    model = find_model("qwen2.5-0.5b")
    options = EngineOptions(mode="eager", max_num_seqs=8, attention_backend="triton")
    words = sglang_server.command(model, options, 30000, 100, tmp_path, ["--more"])
    pairs = dict(zip(words, words[1:], strict=False))
    expected = {"-m": "sglang.launch_server", "--model-path": model.path, "--load-format": "dummy"}
    expected |= {"--served-model-name": "qwen2.5-0.5b", "--port": "30000", "--tp-size": "1"}
    expected |= {"--max-running-requests": "8", "--attention-backend": "triton"}
    expected |= {"--context-length": "4096", "--tokenizer-path": str(tmp_path)}
    assert {name: pairs.get(name) for name in expected} == expected
    assert {"--disable-cuda-graph", "--disable-piecewise-cuda-graph"} <= set(words)
    assert words[-1] == "--more"
    with pytest.raises(EngineFailure, match="in tokens, not in GiB") as caught:
        sglang_server.command(model, EngineOptions(kv_cache_gib=2.0), 1, 1, tmp_path, [])
    assert "--max-total-tokens" in caught.value.hint


def test_what_a_server_does_not_tell_is_unknown() -> None:
    facts = sglang_server.facts({}, {})
    assert facts.pop("mode") is None
    assert set(facts.values()) == {None}


@pytest.mark.parametrize(
    ("said", "config", "dtype"),
    [
        ("auto", {"torch_dtype": "bfloat16"}, "bfloat16"),
        ("auto", {"dtype": "float16"}, "float16"),
        ("auto", {"torch_dtype": "float32"}, None),  # SGLang makes 16 bits of it
        ("float16", {"torch_dtype": "bfloat16"}, "float16"),
    ],
)
def test_the_type_of_weights_is_what_was_asked_for(said: str, config: Any, dtype: Any) -> None:
    assert sglang_server.facts({"dtype": said}, config)["dtype"] == dtype
