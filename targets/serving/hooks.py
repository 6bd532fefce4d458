"""What is asked of vLLM: its version, the arguments of its engine, the hooks of its profiler."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from nsight_prof.targets.serving.failures import PYTHON_HINT, EngineFailure
from nsight_prof.targets.serving.models import Model
from nsight_prof.targets.serving.options import EngineOptions
from nsight_prof.targets.standalone import need

OLDEST = (0, 20)
TRIED = "0.20.2"
# Arguments that an engine can do without: what is missed is said in the `engine` record.
OPTIONAL = {"enable_mfu_metrics": "vLLM's own estimates of FLOPs and bytes"}
GIB = 2**30


def import_vllm() -> Any:
    """Return the module vllm.

    Raises:
        SystemExit: there is none.
        EngineFailure: it does not import, or it is too old.
    """
    need("vllm")
    try:
        vllm = import_module("vllm")
        _ = vllm.LLM, vllm.SamplingParams  # which imports the rest of it
    except Exception as error:
        raise EngineFailure(
            f"vLLM does not import in {sys.executable}: {type(error).__name__}: {error}",
            "a vLLM that was built for another torch or CUDA must be installed anew; "
            f"{PYTHON_HINT}",
            "unsupported",
        ) from error
    version = str(getattr(vllm, "__version__", "unknown"))
    number = re.match(r"(\d+)\.(\d+)", version)
    # A build from a checkout may call itself "dev" or 0.0: its hooks decide.
    if number is not None and (0, 0) < (int(number[1]), int(number[2])) < OLDEST:
        raise EngineFailure(
            f"vLLM {version} of {sys.executable} is too old",
            f"vLLM {OLDEST[0]}.{OLDEST[1]} or newer is needed ({TRIED} was tried)",
            "unsupported",
        )
    return vllm


def engine_arguments(
    options: EngineOptions, model: Model, tokenizer: str | None = None
) -> dict[str, Any]:
    """Return the arguments of vllm.LLM.

    Args:
        options: how the engine is to be made.
        model: which model.
        tokenizer: folder of one, for a model that takes images; None: it needs none.

    Prompts are token ids, so that no tokenizer is needed; prefixes are not cached, so that a
    prompt that comes again costs what it cost before; statistics are kept for get_metrics.

    Raises:
        EngineFailure: options that exclude each other.
    """
    if options.layer_ranges and options.mode != "eager":
        raise EngineFailure(
            "ranges of layers are there in eager mode alone: a CUDA graph has no layers",
            "add --mode eager",
            "unsupported",
        )
    arguments: dict[str, Any] = {
        "model": model.path,
        "load_format": model.load_format,
        "skip_tokenizer_init": True,
        "dtype": options.dtype,
        "seed": options.seed,
        "tensor_parallel_size": options.tensor_parallel,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "enforce_eager": options.mode == "eager",
        "enable_prefix_caching": False,
        "disable_log_stats": False,
        "enable_mfu_metrics": True,
    }
    cache = None if options.kv_cache_gib is None else round(options.kv_cache_gib * GIB)
    chosen: dict[str, Any] = {
        "max_model_len": options.max_model_len,
        "max_num_seqs": options.max_num_seqs,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "kv_cache_memory_bytes": cache,
        "attention_backend": options.attention_backend,
        "cudagraph_capture_sizes": list(options.capture_sizes) or None,
        "profiler_config": {"profiler": "cuda"} if options.profiler else None,
        "enable_layerwise_nvtx_tracing": True if options.layer_ranges else None,
    }
    if options.images:
        # An image that comes again is encoded again: no cache of inputs (nor of prefixes, above).
        arguments |= {"skip_tokenizer_init": False, "mm_processor_cache_gb": 0}
        chosen |= {
            "tokenizer": tokenizer,
            "limit_mm_per_prompt": {"image": options.images, "video": 0},
        }
    arguments |= {name: value for name, value in chosen.items() if value is not None}
    return {**arguments, **options.extra}


def known_arguments(vllm: Any) -> set[str] | None:
    """Return the names of the arguments that this version's LLM takes, None if it does not say."""
    names: set[str] = set()
    try:
        engine_args = vllm.EngineArgs
        names |= set(inspect.signature(vllm.LLM.__init__).parameters)
    except (AttributeError, ImportError, TypeError, ValueError):
        return None
    if not is_dataclass(engine_args):
        return None
    return names | {entry.name for entry in fields(engine_args)}


def fit(vllm: Any, arguments: dict[str, Any], version: str) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments that this version knows, and what is missed by those left out.

    Raises:
        EngineFailure: it lacks one that the run cannot do without.
    """
    known = known_arguments(vllm)
    if known is None:
        return arguments, []
    lacking = [name for name in arguments if name not in known]
    needed = [name for name in lacking if name not in OPTIONAL]
    if needed:
        raise EngineFailure(
            f"vLLM {version} lacks the argument {', '.join(needed)}",
            f"use a version that has it ({TRIED} does), or leave out the option that asks for it",
            "unsupported",
        )
    kept = {name: value for name, value in arguments.items() if name not in lacking}
    return kept, [f"{name}: {OPTIONAL[name]}" for name in lacking]


def check_class(llm_class: Any, options: EngineOptions, version: str) -> None:
    """Check the methods that are needed before the engine's start takes its time.

    Raises:
        EngineFailure: a hook is missing.
    """
    if options.profiler:
        for hook in ("start_profile", "stop_profile"):
            if not callable(getattr(llm_class, hook, None)):
                raise _no_hook(version, f"LLM.{hook}")
    if options.nvtx_scopes and find_spec("nvtx") is None:
        raise EngineFailure(
            "the NVTX scopes of vLLM need the package nvtx",
            f"{sys.executable} -m pip install nvtx, or leave --nvtx-scopes out",
            "unsupported",
        )


def stepping_engine(llm: Any, version: str) -> Any:
    """Return the engine that is stepped.

    Raises:
        EngineFailure: this version has none that can be.
    """
    engine = getattr(llm, "llm_engine", None)
    for hook in ("add_request", "step", "has_unfinished_requests"):
        if not callable(getattr(engine, hook, None)):
            raise _no_hook(version, f"LLM.llm_engine.{hook}")
    return engine


def sampling(vllm: Any, output_tokens: int) -> Any:
    """Return SamplingParams: exactly so many tokens, the most probable ones, new ones each step."""
    return vllm.SamplingParams(
        max_tokens=output_tokens,
        temperature=0.0,
        ignore_eos=True,
        detokenize=False,
        output_kind=import_module("vllm.sampling_params").RequestOutputKind.DELTA,
    )


def token_prompt(token_ids: list[int]) -> Any:
    """Return what add_request takes: with its type where the version has types of inputs."""
    typed = getattr(import_module("vllm.inputs"), "tokens_input", None)
    return {"prompt_token_ids": token_ids} if typed is None else typed(token_ids)


def image_prompt(llm: Any, version: str, token_ids: list[int], images: list[Any]) -> Any:
    """Return what add_request takes for a prompt with images: preprocessed, tokens widened.

    Raises:
        EngineFailure: this version has no hook for it.
    """
    render = getattr(getattr(llm.llm_engine, "renderer", None), "render_cmpl", None)
    if render is None:
        raise _no_hook(version, "LLM.llm_engine.renderer.render_cmpl")
    prompt = {"prompt_token_ids": token_ids, "multi_modal_data": {"image": images}}
    (rendered,) = render([prompt])
    return rendered


def watch_encoder(llm: Any) -> Any:
    """Return what puts ranges round the vision encoder and counts its work; None without the hook.

    Of an engine in this process alone: a model elsewhere cannot be wrapped from here.
    """
    apply_model = getattr(llm, "apply_model", None)
    if apply_model is None:
        return None
    (encoder,) = apply_model(import_module("nsight_prof.targets.serving.encoder").Encoder)
    return encoder


def _no_hook(version: str, hook: str) -> EngineFailure:
    return EngineFailure(
        f"vLLM {version} has no {hook}",
        f"use a version that has it ({TRIED} does)",
        "unsupported",
    )
