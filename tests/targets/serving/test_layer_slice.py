"""Cuts configurations, and runs layer_slice.py as a user does, with a fake vLLM."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nsight_prof.parsers.serving.model_shape import model_shape
from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.layer_slice import cut, narrowed
from nsight_prof.targets.serving.models import find_model


@pytest.mark.parametrize(("name", "ranks"), [("llama-3.1-70b", 8), ("qwen3-32b", 1)])
def test_a_slice_has_the_layers_of_one_rank(name: str, ranks: int) -> None:
    config = find_model(name).config
    assert config is not None
    found = model_shape(cut(config, 4, ranks))
    rank = model_shape(config).shard(ranks)
    assert found.layers == 4
    assert [(line.outputs, line.inputs) for line in (*found.linears(), found.head())] == [
        (line.outputs, line.inputs) for line in (*rank.linears(), rank.head())
    ]


@pytest.mark.parametrize(
    ("name", "layers", "ranks", "said"),
    [
        ("llama-3.1-8b", 4, 3, "do not divide"),
        ("llama-3.1-8b", 33, 1, "32 layers"),
        ("qwen2.5-7b", 4, 2, "hidden_size"),
        ("gemma-3-12b", 4, 1, "each 6th layer"),
    ],
)
def test_what_cannot_be_cut_is_refused(name: str, layers: int, ranks: int, said: str) -> None:
    config = find_model(name).config
    assert config is not None
    with pytest.raises(EngineFailure, match=said):
        cut(config, layers, ranks)


@pytest.mark.parametrize(
    ("more", "ranks", "said"),
    [
        ({"first_k_dense_replace": 4}, 1, "do not tell both"),  # DeepSeek-V2
        ({"mlp_only_layers": [0]}, 1, "others have none"),
        ({}, 2, "divide experts"),
    ],
)
def test_layers_with_experts_are_cut_where_all_are_alike(
    more: dict[str, object], ranks: int, said: str
) -> None:
    config = find_model("qwen3-30b-a3b").config
    assert config is not None
    assert cut(config, 4, 1)["num_hidden_layers"] == 4
    with pytest.raises(EngineFailure, match=said):
        cut(config | more, 4, ranks)


def test_first_layers_without_experts_and_latent_heads_stay_as_they_are() -> None:
    config = find_model("deepseek-v2-lite").config
    assert config is not None
    found = cut(config, 4, 1)
    changed = {key for key in found if found[key] != config.get(key)}
    assert changed == {"num_hidden_layers", "prof_slice"}


@pytest.mark.parametrize("name", ["qwen2.5-7b", "gemma-3-12b", "qwen3-30b-a3b", "deepseek-v2-lite"])
def test_a_narrow_engine_has_all_layers_and_keeps_their_widths(name: str) -> None:
    config = find_model(name).config
    assert config is not None
    found = narrowed(cut(config, config["num_hidden_layers"], 1))
    shape, whole = model_shape(found), model_shape(config)
    assert (shape.layers, shape.head_dim) == (whole.layers, whole.head_dim)
    assert sum(line.outputs * line.inputs for line in shape.linears()) < 0.2 * sum(
        line.outputs * line.inputs for line in whole.linears()
    )
    assert model_shape(found | found["prof_slice"]["narrowed"]) == whole


@pytest.mark.parametrize("name", ["qwen2.5-7b", "llama-3.1-8b", "qwen3-30b-a3b"])
def test_gpus_that_share_a_narrow_engine_have_as_much_as_one_alone(name: str) -> None:
    config = find_model(name).config
    assert config is not None
    whole = cut(config, config["num_hidden_layers"], 1)
    shared, alone = model_shape(narrowed(whole, 2)).shard(2), model_shape(narrowed(whole))
    assert replace(shared, tensor_parallel=1, vocabulary=alone.vocabulary) == alone
    found = narrowed(whole, 2)
    assert model_shape(found | found["prof_slice"]["narrowed"]) == model_shape(config)


def test_all_batches_are_timed_and_then_traced_together(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.jsonl"
    target = root / "targets/serving/layer_slice.py"
    sizes = [
        "--batches",
        "1",
        "4",
        "--contexts",
        "32",
        "--prompts",
        "16",
        "90000",
        "--repeats",
        "1",
    ]
    environment = os.environ | {
        "PYTHONPATH": str(root / "tests/fakes/vllm_fake"),
        "PROF_RESULTS": str(out),
        "FAKE_VLLM_CALLS": str(tmp_path / "calls.jsonl"),
    }
    words = [sys.executable, str(target), "--model", "qwen3-4b", "--layers", "2", *sizes]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    cases = [line for line in lines if line["record"] == "case"]
    assert [(case["params"]["traced"], case["status"]) for case in cases] == [
        (False, "unsupported"), *[(False, "ok")] * 3, *[(True, "ok")] * 3
    ]  # fmt: skip
    (engine,) = [line for line in lines if line["record"] == "engine"]
    assert engine["model_config"]["num_hidden_layers"] == 2
    assert engine["model_config"]["prof_slice"] == {"layers": 36, "tensor_parallel": 1}
    calls = [json.loads(line)[0] for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert calls.count("start_profile") == calls.count("stop_profile") == 1
