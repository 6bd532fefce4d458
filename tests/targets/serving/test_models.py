import json
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.inputs import random_prompts
from nsight_prof.targets.serving.models import bundled, find_model, vocabulary

# Parameters as published with the weights: huggingface.co/Qwen, meta-llama, mistralai.
PARAMETERS = {
    "deepseek-v2-lite": 15_706_484_224,
    "gemma-3-12b": 11_766_034_176,  # its decoder alone
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-8b-w4a16": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "mistral-7b-v0.3": 7_248_023_552,
}


def folder(path: Path, config: object, *files: str) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    for name in files:
        (path / name).touch()
    return path


def parameters(c: dict[str, Any]) -> int:
    """Count the weights of a Llama, Qwen2, Qwen3 or Gemma 3 decoder, tensor by tensor."""
    if c["model_type"] == "deepseek_v2":
        return _latent_parameters(c)
    gemma = c["model_type"].startswith("gemma3")
    width, vocabulary = c["hidden_size"], c["vocab_size"]
    head = c.get("head_dim", width // c["num_attention_heads"])
    wide, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    biases = wide + 2 * kv if c["model_type"] == "qwen2" else 0
    norms = 4 * width if gemma else 2 * width
    norms += 2 * head if gemma or c["model_type"].startswith("qwen3") else 0
    mlp = 3 * width * c["intermediate_size"]
    if experts := c.get("num_experts"):
        mlp = experts * (3 * width * c["moe_intermediate_size"] + width)
    layer = 2 * width * wide + 2 * width * kv + biases + mlp + norms
    tables = 1 if c.get("tie_word_embeddings", gemma) else 2
    total: int = c["num_hidden_layers"] * layer + tables * vocabulary * width + width
    return total


def _latent_parameters(c: dict[str, Any]) -> int:
    """Count those of DeepSeek-V2-Lite: latent attention, experts beside two that all tokens use."""
    width, heads, latent = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"]
    turned, plain, value = c["qk_rope_head_dim"], c["qk_nope_head_dim"], c["v_head_dim"]
    attention = width * heads * (plain + turned) + width * (latent + turned) + latent
    attention += latent * heads * (plain + value) + heads * value * width + 2 * width
    expert = 3 * width * c["moe_intermediate_size"]
    mixture = (c["n_routed_experts"] + c["n_shared_experts"]) * expert
    mixture += c["n_routed_experts"] * width
    first, layers = c["first_k_dense_replace"], c["num_hidden_layers"]
    dense = first * 3 * width * c["intermediate_size"]
    tables = 2 * c["vocab_size"] * width + width
    total: int = layers * attention + dense + (layers - first) * mixture + tables
    return total


def test_bundled_configurations_are_those_of_the_published_models() -> None:
    assert set(bundled()) == set(PARAMETERS)
    for name, count in PARAMETERS.items():
        model = find_model(name)
        assert model.config is not None
        assert parameters(model.config) == count
        assert model.local
        assert model.load_format == "dummy"
        assert model.name == name


def test_a_local_folder_is_loaded_if_it_has_weights(tmp_path: Path) -> None:
    with_weights = folder(tmp_path / "a", {"vocab_size": 9}, "model.safetensors")
    without = folder(tmp_path / "b", {"vocab_size": 9}, "notes.txt")
    assert find_model(str(with_weights)).load_format == "auto"
    assert find_model(str(without)).load_format == "dummy"
    assert find_model(str(with_weights), "dummy").load_format == "dummy"
    with pytest.raises(EngineFailure, match="has no weights") as caught:
        find_model(str(without), "load")
    assert "--weights dummy" in caught.value.hint


def test_a_folder_goes_before_a_bundled_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path / "qwen2.5-7b", {"vocab_size": 11})
    monkeypatch.chdir(tmp_path)
    assert find_model("qwen2.5-7b").config == {"vocab_size": 11}


def test_a_folder_without_a_configuration_does_not_hide_a_bundled_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "qwen2.5-7b").mkdir()
    monkeypatch.chdir(tmp_path)
    config = find_model("qwen2.5-7b").config
    assert config is not None
    assert config["model_type"] == "qwen2"


def test_hub_names_are_left_to_vllm() -> None:
    model = find_model("Qwen/Qwen2.5-0.5B-Instruct")
    assert (model.path, model.config, model.local) == ("Qwen/Qwen2.5-0.5B-Instruct", None, False)
    assert model.load_format == "auto"
    assert find_model("gpt2", "dummy").load_format == "dummy"


@pytest.mark.parametrize("name", ["/nowhere/model", "./none", "~none/x", "a/b/c", ""])
def test_what_is_no_folder_and_no_hub_name_is_refused(name: str) -> None:
    with pytest.raises(EngineFailure) as caught:
        find_model(name)
    assert "bundled: deepseek-v2-lite, gemma-3-12b, llama-3.1-70b" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "cannot be read"), ("[1]", "holds no mapping"), ("\xff", "cannot be read")],
)
def test_a_broken_configuration_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(EngineFailure, match=said):
        find_model(str(tmp_path))


def test_an_empty_folder_and_a_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(EngineFailure, match=r"has no config\.json"):
        find_model(str(tmp_path))
    (tmp_path / "model.gguf").touch()
    with pytest.raises(EngineFailure, match="is a file"):
        find_model(str(tmp_path / "model.gguf"))


def test_vocabulary_also_of_models_with_images() -> None:
    assert vocabulary({"vocab_size": 7}) == 7
    assert vocabulary({"text_config": {"vocab_size": 8}}) == 8
    assert vocabulary({"vocab_size": None}) is None


def test_prompts_are_as_long_as_asked_and_come_again_with_their_seed() -> None:
    prompts = random_prompts(3, 50, 151_936, seed=4)
    assert [len(p) for p in prompts] == [50, 50, 50]
    assert prompts == random_prompts(3, 50, 151_936, seed=4)
    assert prompts != random_prompts(3, 50, 151_936, seed=5)
    assert prompts[0] != prompts[1]


@pytest.mark.parametrize("vocabulary_size", [1, 2, 3, 17, 1000, 1041, 128_256])
def test_token_ids_are_in_the_vocabulary(vocabulary_size: int) -> None:
    ids = [i for p in random_prompts(2, 200, vocabulary_size, seed=0) for i in p]
    assert min(ids) >= 0
    assert max(ids) < vocabulary_size


def test_no_prompt_of_nothing() -> None:
    with pytest.raises(ValueError, match="no prompts"):
        random_prompts(0, 5, 100, seed=0)
