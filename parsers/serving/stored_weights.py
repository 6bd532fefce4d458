"""Reads how the weights of a quantized checkpoint are stored: bytes a value, scales included.

Known are fp8 (a scale for each tensor, channel or block), AWQ, GPTQ, ModelOpt, and one scheme of
compressed-tensors. Scales of channels and tensors are left out: less than 0.1 % of the matrices.
A checkpoint whose layers differ, or of any other scheme, is refused: its bytes are not known.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.serving.model_shape import BYTES, ModelShape, Quantized, model_shape

KEYS = ("quantization_config", "compression_config", "hf_quant_config")
"""Where a config.json says how it is quantized: Hugging Face, what compressed-tensors wrote at
first, and ModelOpt's file of its own, which may be merged into it."""
MATRICES = ("q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "gate_proj", "up_proj",
            "gate_up_proj", "down_proj", "self_attn", "mlp", "experts")  # fmt: skip
"""Modules of a layer that hold its matrices: where one stays in 16 bits, layers differ."""
DECODERS = {
    **{"qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3"},
    "qwen3_vl_moe": "qwen3_moe",
}
"""model_type of models that see -> the family of their language model."""
OPTIONS = ("--quantization", "-q")
"""Of vLLM's and SGLang's servers: how weights are quantized while they are loaded."""
IGNORED = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules")
SCALE_BITS = {"awq": 16, "gptq": 16, "fp8": 32, "float4": 8}
"""Of the scale of a group: halves of AWQ and GPTQ, floats of blocks in fp8, fp8 of fp4."""


def stored_shape(
    config: Mapping[str, Any], dtype: str = "", kv_cache_dtype: str = "auto"
) -> ModelShape:
    """Return the shape of a model that was served, as its checkpoint stores the weights.

    Of a model that also sees it is the shape of the language model: `sees` tells which do.

    Args:
        config: the content of config.json.
        dtype: of activations, where it is not that of the configuration.
        kv_cache_dtype: type of the KV cache; auto: that of the checkpoint, else of activations.

    Raises:
        ArtifactUnreadable: as `model_shape`, and a quantization whose bytes are not known.
    """
    given = next((config[key] for key in KEYS if config.get(key)), None)
    unquantized = {k: v for k, v in language_model(config).items() if k not in KEYS}
    shape = model_shape(unquantized, dtype, kv_cache_dtype)
    if given is None:
        return shape
    if not isinstance(given, Mapping):
        raise _unknown(str(given), "it is no mapping")
    inner = given.get("quantization")
    found: Mapping[str, Any] = inner if isinstance(inner, Mapping) else given
    method = str(given.get("quant_method") or found.get("quant_algo") or "unknown").lower()
    differing = wide_matrix(found)
    if differing or found.get("dynamic") or _sparse(found):
        raise _unknown(method, f"{differing or 'some matrices'} differ from the others")
    shape = dataclasses.replace(shape, quantized=_stored(method, found))
    cache = found.get("kv_cache_scheme") or found.get("kv_cache_quant_algo")
    if cache and kv_cache_dtype in ("", "auto"):
        bits = cache.get("num_bits") if isinstance(cache, Mapping) else 8
        shape = dataclasses.replace(shape, kv_bytes=bits / 8 if bits else BYTES["fp8"])
    return shape


def told_to_quantize(config: Mapping[str, Any], args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration with what vLLM was told to quantize while it loads 16-bit weights.

    Args:
        config: the content of config.json; a checkpoint that is quantized already stays as it is.
        args: `args` of the engine's record: arguments of vllm.LLM, or `server_args` of a server.
    """
    words = re.split(r"[\s=]+", str(args.get("server_args") or ""))
    options = (words[at + 1] for at, word in enumerate(words[:-1]) if word in OPTIONS)
    method = args.get("quantization") or next(options, None)
    if not method or any(config.get(key) for key in KEYS):
        return config
    return {**config, KEYS[0]: {"quant_method": method, "activation_scheme": "dynamic"}}


def sees(config: Mapping[str, Any]) -> bool:
    """Tell whether a model has a vision encoder beside its language model."""
    return isinstance(config.get("vision_config"), Mapping)


def language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of the decoder in a model that sees; any other as it is.

    transformers names it after the whole ("qwen2_5_vl_text"), older files have no part of its own.
    """
    if not sees(config):
        return config
    text = config.get("text_config")
    inner = text if isinstance(text, Mapping) else {}
    kind = str(inner.get("model_type") or config.get("model_type", ""))
    keys = ("dtype", "torch_dtype", "tie_word_embeddings") if inner else tuple(config)
    outer = {key: config[key] for key in keys if config.get(key) is not None}
    return {**inner, **outer, "model_type": DECODERS.get(kind.removesuffix("_text"), kind)}


def wide_matrix(found: Mapping[str, Any]) -> str:
    """Return the name of a matrix of layers that stays in 16 bits; empty where none does."""
    names = [str(name) for key in IGNORED for name in found.get(key) or ()]
    return next((name for name in names if _matrix(name)), "")


def _matrix(name: str) -> bool:
    """Tell whether a name or pattern of ignored modules means matrices of layers."""
    last = re.split(r"[.*\\$]+", name.removeprefix("re:").rstrip("*.$"))[-1]
    return last in MATRICES


def _sparse(found: Mapping[str, Any]) -> bool:
    sparsity = found.get("sparsity_config")
    return isinstance(sparsity, Mapping) and sparsity.get("format", "dense") != "dense"


def _stored(method: str, found: Mapping[str, Any]) -> Quantized:
    """Return the type of the matrices of layers and the bytes a value takes, with its scale."""
    if found.get("config_groups"):
        return _groups(method, found["config_groups"])
    algorithm = str(found.get("quant_algo") or "").upper()
    if method == "fp8" or algorithm == "FP8":
        block = math.prod(found.get("weight_block_size") or [0])
        dynamic = str(found.get("activation_scheme")) == "dynamic"
        return Quantized("fp8", dynamic, _value_bytes(8, block, SCALE_BITS["fp8"]))
    if algorithm == "NVFP4":
        return Quantized("float4", True, _value_bytes(4, 16, SCALE_BITS["float4"]))
    bits, group = found.get("bits"), found.get("group_size")
    if method not in SCALE_BITS or not isinstance(bits, int) or not isinstance(group, int):
        raise _unknown(method, algorithm or "its config.json does not tell bits and groups")
    zero = found.get("zero_point", True) if method == "awq" else not found.get("sym", True)
    scale = SCALE_BITS[method] + (bits if zero else 0)
    value_bytes = _value_bytes(bits, group, scale)
    return Quantized(f"int{bits}", dynamic=False, value_bytes=value_bytes, wide_inputs=True)


def _groups(method: str, groups: object) -> Quantized:
    """Return the one scheme of compressed-tensors, or of ModelOpt's form of it."""
    schemes = list(groups.values()) if isinstance(groups, Mapping) else []
    if len(schemes) != 1 or not isinstance(schemes[0], Mapping):
        raise _unknown(method, f"{len(schemes)} groups of matrices differ")
    weights, inputs = (schemes[0].get(key) or {} for key in ("weights", "input_activations"))
    bits, kind = weights.get("num_bits"), weights.get("type")
    if not isinstance(bits, int) or kind not in ("int", "float"):
        raise _unknown(method, f"weights of {bits} bits {kind}")
    dtype = "fp8" if (bits, kind) == (8, "float") else f"{kind}{bits}"
    block = math.prod(weights.get("block_structure") or [weights.get("group_size") or 0])
    scale = SCALE_BITS.get(dtype, 16) + (0 if weights.get("symmetric", True) else bits)
    return Quantized(
        dtype,
        dynamic=bool(inputs.get("dynamic")),
        value_bytes=_value_bytes(bits, block, scale),
        wide_inputs=not inputs,
    )


def _value_bytes(bits: int, group: int, scale_bits: int) -> float:
    """Return bytes of a value; a `group` below 1 is a whole channel, whose scale does not count."""
    return (bits + (scale_bits / group if group > 0 else 0)) / 8


def _unknown(method: str, reason: str) -> ArtifactUnreadable:
    return ArtifactUnreadable(
        f"the bytes of weights quantized by {method} are not known: {reason}",
        "the rest of the report does not need them; fp8, AWQ, GPTQ, ModelOpt and one scheme of "
        "compressed-tensors for all layers are known",
    )
