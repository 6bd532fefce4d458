"""The arguments of an engine, as many as the targets use."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import Any

from vllm import _failures

DEFAULTS: dict[str, Any] = {
    "model": "",
    "load_format": "auto",
    "skip_tokenizer_init": False,
    "tokenizer": None,
    "dtype": "auto",
    "seed": 0,
    "tensor_parallel_size": 1,
    "gpu_memory_utilization": 0.92,
    "enforce_eager": False,
    "enable_prefix_caching": None,
    "disable_log_stats": False,
    "enable_mfu_metrics": False,
    "max_model_len": None,
    "max_num_seqs": None,
    "max_num_batched_tokens": None,
    "kv_cache_memory_bytes": None,
    "attention_backend": None,
    "cudagraph_capture_sizes": None,
    "profiler_config": None,
    "enable_layerwise_nvtx_tracing": False,
    "async_scheduling": None,
    "trust_remote_code": False,
    "limit_mm_per_prompt": None,
    "mm_processor_cache_gb": 4,
}

EngineArgs = make_dataclass(
    "EngineArgs",
    [
        (name, Any, field(default=value))
        for name, value in DEFAULTS.items()
        if not _failures.hidden(name)
    ],
)
