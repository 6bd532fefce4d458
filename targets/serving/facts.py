"""What an engine says about itself: the fields of an `engine` record."""

from __future__ import annotations

import re
from typing import Any


def engine_facts(llm: Any, log: str = "") -> dict[str, Any]:
    """Return sizes and settings of a started engine, None where this version does not tell.

    Args:
        llm: vllm.LLM.
        log: what an engine in processes of its own has logged: it names the attention there.
    """
    config = "llm_engine.vllm_config"
    sizes = deep(llm, f"{config}.compilation_config.cudagraph_capture_sizes")
    return {
        "dtype": _dtype(deep(llm, f"{config}.model_config.dtype")),
        "max_model_len": _integer(deep(llm, f"{config}.model_config.max_model_len")),
        "max_num_seqs": _integer(deep(llm, f"{config}.scheduler_config.max_num_seqs")),
        "max_num_batched_tokens": _integer(
            deep(llm, f"{config}.scheduler_config.max_num_batched_tokens")
        ),
        "kv_blocks": _integer(deep(llm, f"{config}.cache_config.num_gpu_blocks")),
        "block_size": _integer(deep(llm, f"{config}.cache_config.block_size")),
        "kv_cache_dtype": _text(deep(llm, f"{config}.cache_config.cache_dtype")),
        "kv_bytes": _kv_bytes(llm, config),
        "attention_backend": _attention(llm, config, log),
        "async_scheduling": deep(llm, f"{config}.scheduler_config.async_scheduling"),
        "capture_sizes": None if sizes is None else [int(size) for size in sizes],
    }


def hf_config(llm: Any) -> dict[str, Any] | None:
    """Return the model's configuration as the engine read it, None if it does not tell."""
    found = deep(llm, "llm_engine.model_config.hf_config")
    try:
        return dict(found.to_dict())
    except (AttributeError, TypeError, ValueError):
        return None


def deep(root: Any, path: str) -> Any:
    """Return the attribute at a dotted path, None where a part of it is missing."""
    for name in path.split("."):
        root = root[int(name)] if name.isdigit() and _holds(root, int(name)) else _get(root, name)
        if root is None:
            return None
    return root


def _holds(root: Any, index: int) -> bool:
    return isinstance(root, list | tuple) and len(root) > index


def _get(root: Any, name: str) -> Any:
    try:
        return getattr(root, name, None)
    except Exception:  # a property that cannot be asked now
        return None


def _kv_bytes(llm: Any, config: str) -> int | None:
    """Return the bytes of the KV cache on each GPU: as asked for, or as vLLM found room."""
    asked = _integer(deep(llm, f"{config}.cache_config.kv_cache_memory_bytes"))
    found = _integer(
        deep(llm, "llm_engine.engine_core.engine_core.available_gpu_memory_for_kv_cache")
    )
    return asked or (found if found is not None and found > 0 else None)


def _attention(llm: Any, config: str, log: str) -> str | None:
    """Return the name of the attention that is used: asked for, in this process, or logged."""
    chosen = deep(llm, f"{config}.attention_config.backend")
    if chosen is not None:
        return _text(getattr(chosen, "name", chosen))
    runner = "llm_engine.model_executor.driver_worker.worker.model_runner"
    backend = deep(llm, f"{runner}.attn_groups.0.0.backend")
    if backend is not None:
        try:
            return str(backend.get_name())
        except Exception:
            return _text(getattr(backend, "__name__", None))
    logged = re.findall(r"Using (\w+) attention backend", log)
    return logged[-1] if logged else None


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _dtype(value: Any) -> str | None:
    """Return torch.bfloat16 as "bfloat16"."""
    return None if value is None else str(value).removeprefix("torch.")
