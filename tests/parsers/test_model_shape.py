"""Shapes of models: parameter counts as published and as modules of torch have them."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.serving.model_shape import ModelShape, model_shape, read_model_shape

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MISTRAL = LLAMA | {"model_type": "mistral", "vocab_size": 32000, "sliding_window": 4096}
MIXTRAL = MISTRAL | {
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
QWEN3_8B = {
    "model_type": "qwen3",
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "dtype": "bfloat16",
}
QWEN3_06B = QWEN3_8B | {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "tie_word_embeddings": True,
}
QWEN3_30B_A3B = QWEN3_8B | {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
QWEN15_MOE = {
    "model_type": "qwen2_moe",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "num_hidden_layers": 24,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "torch_dtype": "bfloat16",
}
# Parameters as the models' pages on huggingface.co state them, by the headers of their weights.
PUBLISHED = {
    "llama-3.1-8b": (LLAMA, 8_030_261_248),
    "mistral-7b-v0.1": (MISTRAL, 7_241_732_096),
    "mixtral-8x7b": (MIXTRAL, 46_702_792_704),
    "qwen3-8b": (QWEN3_8B, 8_190_735_360),
    "qwen3-0.6b": (QWEN3_06B, 596_049_920),
    "qwen3-30b-a3b": (QWEN3_30B_A3B, 30_532_122_624),
    "qwen1.5-moe-a2.7b": (QWEN15_MOE, 14_315_784_192),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_that_were_published(name: str) -> None:
    config, parameters = PUBLISHED[name]
    assert model_shape(config).parameters() == parameters


@pytest.mark.parametrize(
    ("name", "parameters", "kv_bytes"),
    [
        ("llama-3.1-8b", 8_030_261_248, 131_072),
        ("qwen2.5-7b", 7_615_616_512, 57_344),
        ("qwen2.5-0.5b", 494_032_768, 12_288),
        ("qwen3-4b", 4_022_468_096, 147_456),
        ("qwen3-14b", 14_768_307_200, 163_840),
        ("qwen3-32b", 32_762_123_264, 262_144),
        ("llama-3.1-70b", 70_553_706_496, 327_680),
        ("mistral-7b-v0.3", 7_248_023_552, 131_072),
        ("gemma-3-12b", 11_766_034_176, 393_216),
    ],
)
def test_bundled_configurations(root: Any, name: str, parameters: int, kv_bytes: int) -> None:
    shape = read_model_shape(root / "targets" / "serving" / "configs" / name)
    assert shape.parameters() == parameters
    assert shape.kv_bytes_per_token() == kv_bytes


def _modules(shape: ModelShape, nn: Any) -> Any:
    """Build the model with modules of torch, as its family is defined, without memory."""
    wide, grouped = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    norms = [nn.RMSNorm(shape.hidden) for _ in range(2 * shape.layers + 1)]
    layers = []
    for _ in range(shape.layers):
        layers += [
            nn.Linear(shape.hidden, wide, bias=shape.qkv_bias),
            nn.Linear(shape.hidden, grouped, bias=shape.qkv_bias),
            nn.Linear(shape.hidden, grouped, bias=shape.qkv_bias),
            nn.Linear(wide, shape.hidden, bias=shape.output_bias),
            nn.Linear(shape.hidden, shape.intermediate, bias=shape.mlp_bias),
            nn.Linear(shape.hidden, shape.intermediate, bias=shape.mlp_bias),
            nn.Linear(shape.intermediate, shape.hidden, bias=shape.mlp_bias),
        ]
    embedding = nn.Embedding(shape.vocabulary, shape.hidden)
    head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
    if shape.tied:
        head.weight = embedding.weight
    return nn.ModuleList([embedding, *layers, *norms, head])


@settings(deadline=None)  # the first import of torch takes seconds
@given(
    layers=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    head_dim=st.sampled_from([8, 16]),
    intermediate=st.integers(1, 50),
    vocabulary=st.integers(1, 99),
    tied=st.booleans(),
    bias=st.booleans(),
    mlp_bias=st.booleans(),
)
def test_parameters_are_those_of_modules_of_torch(
    layers: int, kv_heads: int, group: int, head_dim: int, intermediate: int, vocabulary: int,
    tied: bool, bias: bool, mlp_bias: bool,
) -> None:  # fmt: skip
    torch = pytest.importorskip("torch")
    shape = model_shape(
        LLAMA
        | {
            "num_hidden_layers": layers,
            "num_attention_heads": kv_heads * group,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "hidden_size": 24,
            "intermediate_size": intermediate,
            "vocab_size": vocabulary,
            "tie_word_embeddings": tied,
            "attention_bias": bias,
            "mlp_bias": mlp_bias,
        }
    )
    with torch.device("meta"):
        built = _modules(shape, torch.nn)
    assert shape.parameters() == sum(parameter.numel() for parameter in built.parameters())


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_shards_hold_the_matrices_once_and_norms_each(gpus: int) -> None:
    whole = model_shape(LLAMA)
    shard = whole.shard(gpus)
    norms = whole.norm_parameters()
    assert shard.norm_parameters() == norms
    assert (shard.parameters() - norms) * gpus == whole.parameters() - norms
    assert shard.kv_bytes_per_token() * gpus == whole.kv_bytes_per_token()
    assert shard.tensor_parallel == gpus


def test_key_value_heads_are_copied_where_there_are_fewer_than_gpus() -> None:
    shard = model_shape(LLAMA).shard(16)
    assert shard.kv_heads == 1
    assert shard.heads == 2


def test_experts_are_split_and_routers_are_not() -> None:
    whole = model_shape(QWEN3_30B_A3B)
    shard = whole.shard(2)
    gates = [next(x for x in s.linears() if x.path.endswith("mlp.gate")) for s in (whole, shard)]
    downs = [next(x for x in s.linears() if "down_proj" in x.path) for s in (whole, shard)]
    assert gates[0] == gates[1]
    assert downs[0].parameters == 2 * downs[1].parameters


@pytest.mark.parametrize("gpus", [3, 5, 0])
def test_a_split_that_does_not_fit_is_refused(gpus: int) -> None:
    with pytest.raises(UsageError, match="cannot be"):
        model_shape(LLAMA).shard(gpus)


def test_active_parameters_are_those_that_a_token_meets() -> None:
    """Qwen3-30B-A3B: 3.3 billion active ones, as its page states (3.35 with the embeddings)."""
    shape = model_shape(QWEN3_30B_A3B)
    active = sum(line.active for line in (*shape.linears(), shape.head()))
    assert 3.0e9 < active < 3.4e9


def test_layers_without_experts_are_dense() -> None:
    mixed = model_shape(QWEN3_30B_A3B | {"decoder_sparse_step": 2, "mlp_only_layers": [1]})
    assert mixed.experts is not None
    assert mixed.experts.layers == 23
    dense = next(line for line in mixed.linears() if line.path == "layers.*.mlp.gate_up_proj")
    assert dense.layers == 25
    assert dense.outputs == 2 * 6144


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "mamba"}, "model type mamba"),
        ({"model_type": ""}, "model type"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization awq"),
        ({"quantization_config": "fp8"}, "quantization fp8"),
        ({"compression_config": {"quant_method": "sparse"}}, "quantization sparse"),
        ({"num_key_value_heads": "four"}, "num_key_value_heads = 'four'"),
        ({"head_dim": -1}, "head_dim = -1"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers"),
        ({"torch_dtype": "int4"}, "type int4"),
        ({"torch_dtype": None}, "type"),
    ],
)
def test_what_is_not_known_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ArtifactUnreadable, match=words):
        model_shape(LLAMA | change)


def test_a_file_that_is_no_configuration_is_refused(tmp_path: Any) -> None:
    with pytest.raises(ArtifactUnreadable, match=r"config\.json"):
        read_model_shape(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ArtifactUnreadable, match=r"config\.json"):
        read_model_shape(tmp_path)


def test_layers_that_alternate_are_counted_by_what_they_see(root: Any) -> None:
    shape = read_model_shape(root / "targets/serving/configs/gemma-3-12b")
    assert shape.spans() == ((1024, 40), (None, 8))
    assert shape.with_layers(12).spans() == ((1024, 10), (None, 2))
    assert model_shape(MISTRAL).spans() == ((4096, 32),)
    config = json.loads((root / "targets/serving/configs/gemma-3-12b/config.json").read_text())
    kinds = (["sliding_attention"] * 5 + ["full_attention"]) * 8
    assert model_shape({**config, "layer_types": kinds}) == shape
    with pytest.raises(ArtifactUnreadable, match="period"):
        model_shape({**config, "layer_types": [*kinds[:-1], "sliding_attention"]})


def test_layers_that_alternate_share_the_blocks_of_the_kv_cache(root: Any) -> None:
    """Oracle: what vLLM 0.20.2 said of captures/prediction/slice-gemma-3-12b-h100 (six layers)."""
    shape = read_model_shape(root / "targets/serving/configs/gemma-3-12b").with_layers(6)
    blocks, block_size, kv_bytes = 475_024, 16, 62_262_375_015
    tokens = blocks * block_size // shape.cache_groups
    assert tokens * shape.kv_bytes_per_token() == pytest.approx(kv_bytes, rel=1e-5)
    assert model_shape(MISTRAL).cache_groups == 1


def test_types_of_the_engine_come_before_those_of_the_configuration() -> None:
    shape = model_shape(LLAMA, "torch.float16", "fp8")
    assert (shape.dtype, shape.weight_bytes, shape.kv_bytes) == ("float16", 2.0, 1.0)
    assert dataclasses.replace(shape, kv_bytes=2.0) == model_shape(LLAMA, "float16", "auto")


def test_a_window_that_is_switched_off_is_none() -> None:
    assert model_shape(MISTRAL).window == 4096
    assert model_shape(QWEN3_8B | {"sliding_window": 4096}).window is None
