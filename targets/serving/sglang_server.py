"""What differs where the server is SGLang's: its command, and what it says about itself.

Words are those of SGLang 0.5.11 (srt/server_args.py, srt/entrypoints/http_server.py).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.healthy import HOST, free_port
from nsight_prof.targets.serving.models import Model
from nsight_prof.targets.serving.options import EngineOptions
from nsight_prof.targets.serving.serve_command import GIB, longest, tokenizer_folder

NAME = "SGLang"
MODULE = "sglang.launch_server"
LAUNCHER = Path(__file__).with_name("sglang_launch.py")
INFO = ("/server_info", "/get_server_info")
"""Where it tells its settings; the second is the older name, deprecated in 0.5.11."""


def command(
    model: Model,
    options: EngineOptions,
    port: int,
    tokens: int,
    folder: Path,
    more: Sequence[str],
) -> list[str]:
    """Return the command of the server; as `serve_command.command`.

    Raises:
        EngineFailure: no tokenizer can be made for the model, or an option has no like in SGLang.
    """
    if options.kv_cache_gib is not None:
        raise EngineFailure(
            "SGLang takes the size of its KV cache in tokens, not in GiB",
            "leave kv_cache_gib out, or --server-args='--max-total-tokens N'",
        )
    start = [str(LAUNCHER)] if options.profiler else ["-m", MODULE]
    words = [sys.executable, *start, "--model-path", model.path]
    words += ["--served-model-name", model.name, "--host", HOST, "--port", str(port)]
    words += ["--load-format", model.load_format, "--dtype", options.dtype]
    words += ["--tp-size", str(options.tensor_parallel), "--random-seed", str(options.seed)]
    words += ["--context-length", str(options.max_model_len or longest(model, tokens))]
    words += ["--mem-fraction-static", f"{options.gpu_memory_utilization:g}"]
    given = {
        "--max-running-requests": options.max_num_seqs,
        "--chunked-prefill-size": options.max_num_batched_tokens,
        "--attention-backend": options.attention_backend,
    }
    for option, value in given.items():
        words += [] if value is None else [option, str(value)]
    if options.mode == "eager":
        words += ["--disable-cuda-graph", "--disable-piecewise-cuda-graph"]  # of decode, of prefill
    elif options.capture_sizes:
        words += ["--cuda-graph-bs", *map(str, options.capture_sizes)]
    made = tokenizer_folder(model, folder)
    words += [] if made is None else ["--tokenizer-path", made]
    # Its own metrics, and no line of log for each request.
    return [*words, "--enable-metrics", "--log-level-http", "warning", *more]


def environment() -> dict[str, str]:
    """Return what is set for the server, where it is not set already.

    SGLang takes its own port and 10000 for gRPC: above 65535 it does not start, used or not.
    """
    return {"SGLANG_GRPC_PORT": str(free_port())}


def facts(info: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what /server_info tells, as fields of an `engine` record; None where it does not.

    Args:
        info: the answer. It also tells the server's key and paths: nothing else is taken from it.
        config: the model's config.json: its type is that of weights where SGLang is to choose.
    """
    states = info.get("internal_states") or [{}]
    memory = states[0].get("memory_usage") or {}
    tokens, page, load = (info.get(k) for k in ("max_total_num_tokens", "page_size", "load_format"))
    graphs = _negated(info.get("disable_cuda_graph"))
    cache_gib = memory.get("kvcache")
    chunk = info.get("chunked_prefill_size")  # -1: prompts are not cut
    dtype = info.get("dtype")
    dtype = config.get("torch_dtype") or config.get("dtype") if dtype == "auto" else dtype
    return {
        "version": info.get("version"),
        # SGLang turns float32 of a configuration into a 16-bit type of its own choice.
        "dtype": dtype if dtype in ("bfloat16", "float16") else None,
        "mode": None if graphs is None else "cuda-graphs" if graphs else "eager",
        "tensor_parallel": info.get("tp_size"),
        "max_num_seqs": states[0].get("effective_max_running_requests_per_dp"),
        "max_num_batched_tokens": chunk if chunk and chunk > 0 else info.get("max_prefill_tokens"),
        "kv_blocks": tokens // page if tokens and page else None,
        "block_size": page,
        "kv_bytes": None if cache_gib is None else round(cache_gib * GIB),
        "kv_cache_dtype": info.get("kv_cache_dtype"),
        "prefix_caching": _negated(info.get("disable_radix_cache")),
        "async_scheduling": _negated(info.get("disable_overlap_schedule")),
        "attention_backend": info.get("attention_backend"),
        "capture_sizes": info.get("cuda_graph_bs") if graphs else None,
        "load_format": load,
        "dummy_weights": None if load is None else load == "dummy",
    }


def _negated(value: Any) -> bool | None:
    return None if value is None else not value
