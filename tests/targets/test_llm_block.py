import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")

TINY = ["--device", "cpu", "--preset", "tiny", "--prompt-len", "8", "--decode-steps", "3"]


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "targets" / "llm_block.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def test_prints_one_json_line_with_shapes_and_conditions(root: Path) -> None:
    done = run(root, *TINY, "--batch", "2", "--dtype", "fp32")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert result["config"]["dtype"] == "fp32"
    assert result["prefill_ms"] is None  # nothing is claimed about a CPU
    assert "llm_block: prefill not timed" in done.stderr


def test_the_listed_gemms_are_those_of_the_model(root: Path) -> None:
    result = json.loads(run(root, *TINY, "--batch", "2", "--layers", "3").stdout)
    shapes = {(g["stage"], g["name"]): g for g in result["gemms"]}
    # tiny: hidden 64, 4 heads of 16 and 2 KV heads, MLP 128, vocabulary 256
    assert [shapes["prefill", "qkv"][x] for x in "mnk"] == [2 * 8, (4 + 2 * 2) * 16, 64]
    assert [shapes["prefill", "gate_up"][x] for x in "mnk"] == [16, 256, 64]
    assert [shapes["decode", "down"][x] for x in "mnk"] == [2, 64, 128]
    assert [shapes["prefill", "head"][x] for x in "mnk"] == [2, 256, 64]
    assert shapes["decode", "qkv"]["calls"] == 3 * 3
    assert shapes["prefill", "head"]["calls"] == 1


def test_the_work_of_both_phases_is_that_of_the_listed_gemms_and_of_attention(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROF_RESULTS", str(tmp_path / "result.jsonl"))
    result = json.loads(run(root, *TINY, "--batch", "2", "--count-work").stdout)
    counted = json.loads((tmp_path / "static_compute.json").read_text())
    stages = {stage["stage"]: stage for stage in counted["stages"]}
    pairs = {"prefill": 8 * 8, "decode": 9 + 10 + 11}  # of query and key, in each sequence
    for name, stage in stages.items():
        products = sum(
            2 * g["m"] * g["n"] * g["k"] * g["calls"] for g in result["gemms"] if g["stage"] == name
        )
        # QK and PV of 2 layers, 2 sequences and 4 heads of width 16
        assert stage["flops"] == products + 2 * 2 * 4 * pairs[name] * 4 * 16
    # Keys and values of 2 heads in both layers, in two bytes, after each step.
    assert stages["decode"]["kv_bytes"] == 2 * 2 * 2 * 2 * 16 * 2 * (9 + 10 + 11)
    assert stages["prefill"]["kv_bytes"] == 0


def test_cuda_graphs_need_a_gpu(root: Path) -> None:
    done = run(root, *TINY, "--graphs")
    assert done.returncode == 2
    assert "--graphs needs a GPU" in done.stderr


def test_decoding_with_the_cache_agrees_with_a_prefill_of_the_whole_text(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    import torch

    path = root / "targets" / "llm_block.py"
    spec = importlib.util.spec_from_file_location("llm_block", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "llm_block", module)
    spec.loader.exec_module(module)
    config = module.parse_arguments([*TINY, "--batch", "2", "--dtype", "fp32"])
    torch.manual_seed(1)
    model = module.Model(config)
    tokens = torch.randint(config.vocab, (2, 9))

    def hidden(text: torch.Tensor, start: int) -> torch.Tensor:
        x = model.embedding(text)
        rotary = model.rotary[:, start : start + text.shape[1]]
        for layer in model.layers:
            x = layer(x, rotary, start)
        return x

    with torch.inference_mode():
        whole = hidden(tokens, 0)[:, -1]
        hidden(tokens[:, :8], 0)
        stepwise = hidden(tokens[:, 8:], 8)[:, -1]
    assert torch.allclose(whole, stepwise, atol=1e-5)


def test_sizes_that_do_not_fit_are_refused(root: Path) -> None:
    done = run(root, *TINY, "--heads", "5")
    assert done.returncode == 2
    assert "hidden must divide by heads" in done.stderr


def test_without_a_gpu_the_default_device_is_refused_with_a_hint(root: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = run(root, "--preset", "tiny")
    assert done.returncode == 1
    assert done.stderr.startswith("error:")
    assert "hint: --device cpu" in done.stderr
