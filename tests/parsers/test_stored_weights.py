"""Bytes of quantized checkpoints: how published ones say what they are, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.serving.stored_weights import stored_shape, told_to_quantize

W4A16 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": W4A16, "input_activations": None}},
    "ignore": ["lm_head"],
}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True}
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}


@pytest.fixture(scope="module")
def config(root: Path) -> dict[str, Any]:
    text = (root / "targets/serving/configs/llama-3.1-8b/config.json").read_text()
    return dict(json.loads(text))


@pytest.mark.parametrize(
    ("given", "dtype", "bits", "wide"),
    [
        # A half as the scale of 128 values, and a zero point of 4 bits where there is one.
        (AWQ, "int4", 4 + (16 + 4) / 128, True),
        (GPTQ, "int4", 4 + 16 / 128, True),
        ({**GPTQ, "bits": 8, "group_size": -1}, "int8", 8, True),
        (COMPRESSED, "int4", 4 + 16 / 128, True),
        (BLOCKS, "fp8", 8 + 32 / 128**2, False),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8", 8, False),
        (NVFP4, "float4", 4 + 8 / 16, False),
    ],
)
def test_the_bytes_of_the_layers_follow_from_the_scheme(
    config: dict[str, Any], given: dict[str, Any], dtype: str, bits: float, wide: bool
) -> None:
    plain = stored_shape(config)
    found = stored_shape({**config, "quantization_config": given})
    assert found.quantized is not None
    assert (found.quantized.dtype, found.quantized.wide_inputs) == (dtype, wide)
    layers = sum(line.values for line in plain.linears())
    assert found.parameter_bytes() == pytest.approx(
        plain.parameter_bytes() - layers * (2 - bits / 8)
    )
    assert found.parameters() == plain.parameters()
    assert found.kv_bytes == (1 if "kv_cache_quant_algo" in given else 2)


@pytest.mark.parametrize(
    ("args", "dtype"),
    [
        ({"quantization": "fp8"}, "fp8"),
        ({"server_args": "--max-num-seqs 8 --quantization=fp8"}, "fp8"),
        ({"server_args": "-q fp8 --seed 1"}, "fp8"),
        ({"server_args": "--seed 1"}, None),
        ({}, None),
    ],
)
def test_an_engine_may_quantize_what_it_loads(
    config: dict[str, Any], args: dict[str, str], dtype: str | None
) -> None:
    found = stored_shape(told_to_quantize(config, args)).quantized
    assert (found.dtype if found else None) == dtype


def test_what_a_checkpoint_says_counts_before_what_an_engine_is_told(
    config: dict[str, Any],
) -> None:
    checkpoint = {**config, "quantization_config": AWQ}
    assert told_to_quantize(checkpoint, {"quantization": "awq_marlin"}) == checkpoint
    with pytest.raises(ArtifactUnreadable, match="bitsandbytes are not known"):
        stored_shape(told_to_quantize(config, {"quantization": "bitsandbytes"}))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("fp8", "it is no mapping"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes are not known"),
        ({**AWQ, "modules_to_not_convert": ["model.layers.0.mlp"]}, "layers.0.mlp differ"),
        ({**GPTQ, "dynamic": {"-:.*down.*": {}}}, "differ from the others"),
        ({**COMPRESSED, "config_groups": {"a": {}, "b": {}}}, "2 groups"),
        ({**COMPRESSED, "sparsity_config": {"format": "sparse-24-bitmask"}}, "differ"),
        ({"quant_method": "gptq"}, "does not tell bits"),
    ],
)
def test_bytes_that_are_not_known_are_refused(
    config: dict[str, Any], given: Any, words: str
) -> None:
    with pytest.raises(ArtifactUnreadable, match=words) as caught:
        stored_shape({**config, "quantization_config": given})
    assert caught.value.hint
