"""Quantized models: how public checkpoints say what they are, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.costs import datasheet
from nsight_prof.parsers.predict.operators import DYNAMIC, FP8, Kind, Step, operators
from nsight_prof.parsers.predict.quantization import quantized_shape

FP8_SCHEME = {"num_bits": 8, "type": "float", "dynamic": False, "strategy": "channel"}
TOKENS = {"num_bits": 8, "type": "float", "dynamic": True, "strategy": "token"}
GROUPS = {"group_0": {"weights": FP8_SCHEME, "input_activations": TOKENS, "targets": ["Linear"]}}
COMPRESSED = {"quant_method": "compressed-tensors", "config_groups": GROUPS, "ignore": ["lm_head"]}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
W4A16 = {"group_0": {"weights": INT4, "input_activations": None, "targets": ["Linear"]}}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head"]}


@pytest.fixture(scope="module")
def config(root: Path) -> dict[str, Any]:
    text = (root / "targets/serving/configs/llama-3.1-8b/config.json").read_text()
    return dict(json.loads(text))


@pytest.mark.parametrize(
    ("given", "dynamic", "kv_bytes"),
    [
        (COMPRESSED, True, 2),
        ({**COMPRESSED, "kv_cache_scheme": FP8_SCHEME}, True, 1),
        ({"quant_method": "fp8", "activation_scheme": "static"}, False, 2),
        (MODELOPT, False, 2),
        ({"producer": {"name": "modelopt"},
          "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, False, 1),
        ({**MODELOPT, "ignore": ["lm_head", "model.layers.0.input_layernorm"]}, False, 2),
    ],
)  # fmt: skip
def test_public_checkpoints_say_how_they_are_quantized(
    config: dict[str, Any], given: dict[str, Any], dynamic: bool, kv_bytes: float
) -> None:
    found = quantized_shape({**config, "quantization_config": given})
    assert found.quantized is not None
    assert (found.quantized.dtype, found.quantized.dynamic) == (FP8, dynamic)
    assert (found.weight_bytes, found.kv_bytes) == (2, kv_bytes)


@pytest.mark.parametrize(
    ("given", "bits", "kv_bytes"),
    [
        # A scale of 16 bits for 128 values, and a zero point of 4 where there is one.
        (AWQ, 4 + 20 / 128, 2),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 4 + 16 / 128, 2),
        ({**COMPRESSED, "config_groups": W4A16}, 4 + 16 / 128, 2),
        ({**COMPRESSED, "config_groups": W4A16, "kv_cache_scheme": FP8_SCHEME}, 4 + 16 / 128, 1),
    ],
)
def test_weights_of_4_bits_are_multiplied_in_16(
    config: dict[str, Any], given: dict[str, Any], bits: float, kv_bytes: float
) -> None:
    wide = quantized_shape(config)
    narrow = quantized_shape({**config, "quantization_config": given})
    assert narrow.kv_bytes == kv_bytes
    step = Step(decode=8, context=100)
    before = {one.name: one for one in operators(wide, step)}
    after = {one.name: one for one in operators(narrow, step)}
    assert before.keys() == after.keys()  # activations are not quantized
    products = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
    for name in products:
        one, same = after[name], before[name]
        assert (one.dtype, one.flops) == ("int4", same.flops)
        assert same.bytes - one.bytes == pytest.approx(one.n * one.k * (2 - bits / 8))
    assert after["lm_head"] == before["lm_head"]
    h100 = datasheet("h100-sxm")
    assert h100.rate("int4") == h100.flop_per_s


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"quant_method": "awq", "bits": 4}, "awq cannot be predicted"),
        ({**AWQ, "bits": 8}, "awq cannot be predicted"),
        ({**AWQ, "modules_to_not_convert": ["model.layers.0.mlp"]}, "stays in 16 bits"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "scales are of blocks"),
        ({**COMPRESSED, "ignore": ["re:.*self_attn.*"]}, "stays in 16 bits"),
        ({**MODELOPT, "exclude_modules": ["model.layers.0.mlp.down_proj"]}, "stays in 16 bits"),
        ({**COMPRESSED, "config_groups": {**GROUPS, "group_1": {}}}, "2 groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {
            "group_0": {"weights": FP8_SCHEME, "input_activations": None}}}, "activations of 16"),
        ({**MODELOPT, "quant_algo": "NVFP4"}, "NVFP4"),
        ({**COMPRESSED, "kv_cache_scheme": {"num_bits": 4, "type": "int"}}, "a KV cache of"),
    ],
)  # fmt: skip
def test_what_nobody_measured_is_refused(
    config: dict[str, Any], given: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        quantized_shape({**config, "quantization_config": given})
    assert caught.value.hint


def test_a_checkpoint_keeps_its_type(config: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="the checkpoint is in fp8"):
        quantized_shape({**config, "quantization_config": MODELOPT}, "bfloat16")
    with pytest.raises(UsageError, match="the checkpoint is in int4"):
        quantized_shape({**config, "quantization_config": AWQ}, FP8)
    with pytest.raises(UsageError, match="KV cache of type int4"):
        quantized_shape(config, kv_cache_dtype="int4")


def test_quantized_layers_take_fewer_bytes_and_quantize_their_inputs(
    config: dict[str, Any],
) -> None:
    wide, narrow = quantized_shape(config), quantized_shape(config, FP8, FP8)
    layers = sum(line.values for line in wide.linears())
    assert wide.parameter_bytes() - narrow.parameter_bytes() == layers
    step = Step(prefill=((512, 0),), decode=4, context=100)
    before, after = operators(wide, step), operators(narrow, step)
    added = [one for one in after if one.quantizes]
    assert [one.name for one in added] == [
        f"quantize_{name}" for name in ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
    ]
    assert {(one.kind, one.dtype, one.m) for one in added} == {(Kind.POINTWISE, DYNAMIC, 516)}
    rest = {one.name: one for one in after if not one.quantizes}
    for one in before:
        assert one.flops == rest[one.name].flops
    assert rest["lm_head"] in before
    assert rest["qkv_proj"].dtype == rest["attention_decode"].dtype == FP8
    assert rest["attention_decode"].bytes < {o.name: o for o in before}["attention_decode"].bytes
