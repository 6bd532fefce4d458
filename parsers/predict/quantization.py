"""Reads how the weights of a model, and its KV cache, are quantized: what predictions know of it.

Known are matrices of the layers in fp8 (e4m3) with a scale for each tensor or channel, and
activations in fp8, as compressed-tensors, ModelOpt and vLLM's own `--quantization fp8` have them
(vLLM 0.20: model_executor/layers/quantization), and weights of 4 bits that are multiplied in 16
(w4a16: AWQ, GPTQ, compressed-tensors). Everything else is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.predict.operators import FP8
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.serving.model_shape import BYTES, ModelShape, Quantized, model_shape
from nsight_prof.parsers.serving.stored_weights import KEYS, stored_shape, wide_matrix

INT4 = "int4"


def quantized_shape(
    config: Mapping[str, Any], dtype: str = "", kv_cache_dtype: str = "auto"
) -> ModelShape:
    """Return the shape of a model whose weights may be in fp8 or 4 bits, its KV cache in fp8.

    Args:
        config: the content of config.json.
        dtype: what the engine is told: fp8 quantizes a model in 16 bits when it is loaded; empty,
            or the model's own type: what config.json says.
        kv_cache_dtype: type of the KV cache; auto: that of the checkpoint, else of the activations.

    Raises:
        UsageError: a quantization that nobody measured.
        ArtifactUnreadable: as `model_shape`.
    """
    given = next((config[key] for key in KEYS if config.get(key)), None)
    unquantized = {key: value for key, value in config.items() if key not in KEYS}
    quantized, cache = None, "auto"
    if given is not None:
        quantized, cache = _read(given, _weights_alone(config))
        if dtype and (dtype, quantized.dtype) != (FP8, FP8):
            raise UsageError(
                f"the checkpoint is in {quantized.dtype}, and {dtype} was asked for",
                "leave the type to the model, or give the config.json of the one in 16 bits",
            )
    elif dtype == FP8:
        quantized = Quantized(FP8, dynamic=True)
    shape = model_shape(unquantized, "" if dtype == FP8 else dtype)
    wanted = cache if kv_cache_dtype in ("", "auto") else kv_cache_dtype
    if wanted not in ("auto", *BYTES):
        raise UsageError(
            f"a KV cache of type {wanted} is not known", f"known are auto, {', '.join(BYTES)}"
        )
    kv_bytes = shape.kv_bytes if wanted == "auto" else BYTES[wanted]
    return dataclasses.replace(shape, quantized=quantized, kv_bytes=kv_bytes)


def _weights_alone(config: Mapping[str, Any]) -> Quantized | None:
    """Return how weights of 4 bits are stored; None where they are others, or not known."""
    try:
        found = stored_shape(config).quantized
    except ArtifactUnreadable:
        return None
    return found if found and found.wide_inputs and found.dtype == INT4 else None


def _read(given: object, weights_alone: Quantized | None) -> tuple[Quantized, str]:
    """Return how the layers are quantized, and the type of the KV cache (auto: not said)."""
    if not isinstance(given, Mapping):
        raise _unknown(str(given), "it is no mapping")
    inner = given.get("quantization")
    found: Mapping[str, Any] = inner if isinstance(inner, Mapping) else given
    method = str(given.get("quant_method") or found.get("quant_algo") or "unknown").lower()
    if differing := wide_matrix(found):
        raise _unknown(method, f"{differing} stays in 16 bits, so that layers differ")
    scheme = found.get("kv_cache_scheme") or found.get("kv_cache_quant_algo")
    cache = _cache(method, scheme) if scheme else "auto"
    if weights_alone is not None:
        return weights_alone, cache
    if method == "fp8" and "quant_algo" not in found and "config_groups" not in found:
        if found.get("weight_block_size"):
            raise _block(method)
        return Quantized(FP8, dynamic=str(found.get("activation_scheme")) == "dynamic"), cache
    if found.get("config_groups"):
        return _groups(method, found["config_groups"]), cache
    if str(found.get("quant_algo", "")).upper() == "FP8":
        return Quantized(FP8, dynamic=False), cache
    raise _unknown(method, str(found.get("quant_algo") or "no scheme that is known"))


def _groups(method: str, groups: object) -> Quantized:
    """Return the one scheme of compressed-tensors, or of ModelOpt's form of it."""
    schemes = list(groups.values()) if isinstance(groups, Mapping) else []
    if len(schemes) != 1 or not isinstance(schemes[0], Mapping):
        raise _unknown(method, f"{len(schemes)} groups of matrices differ")
    weights, inputs = (schemes[0].get(key) or {} for key in ("weights", "input_activations"))
    for what, scheme in (("weights", weights), ("activations", inputs)):
        bits = scheme.get("num_bits"), scheme.get("type")
        if bits != (8, "float"):
            label = f"{bits[0]} bits {bits[1]}" if bits[0] else "16 bits"
            raise _unknown(method, f"{what} of {label}; only fp8 in both was measured")
    if weights.get("strategy") in ("block", "group") or weights.get("block_structure"):
        raise _block(method)
    return Quantized(FP8, dynamic=bool(inputs.get("dynamic")))


def _cache(method: str, scheme: object) -> str:
    """Return the type of a KV cache that the checkpoint has scales for: fp8 alone is known."""
    bits = (scheme.get("num_bits"), scheme.get("type")) if isinstance(scheme, Mapping) else scheme
    if bits == (8, "float") or str(bits).upper() in ("FP8", "STATIC", "DYNAMIC"):
        return FP8
    raise _unknown(method, f"a KV cache of {scheme}")


def _block(method: str) -> UsageError:
    return _unknown(
        method,
        stored(
            "its scales are of blocks of weights; the imported tables time the launches of such "
            "products and not their kernels"
        ),
    )


def _unknown(method: str, reason: str) -> UsageError:
    return UsageError(
        stored(
            "weights quantized by {method} cannot be predicted: {reason}",
            method=method,
            reason=reason,
        ),
        "fp8 with a scale for each tensor or channel is known, and weights of 4 bits; profile "
        "others: prof run vllm-kernels --set target.args.model=MODEL",
    )
