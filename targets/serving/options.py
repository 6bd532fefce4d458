"""The options of the engine that the serving targets share."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from nsight_prof.targets.harness.options import positive, whole
from nsight_prof.targets.serving.models import WEIGHTS, bundled

MODES = ("cuda-graphs", "eager")
PROCESSES = ("inline", "spawn")
ADAPTED = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
"""Matrices of a layer that can have adapters, by vLLM's names."""
EAGLE, NGRAM = "eagle", "ngram"
"""What drafts tokens: a made-up head, or what follows the same tokens earlier in the request."""


@dataclass(frozen=True)
class EngineOptions:
    """How the engine is to be made; None leaves a value to vLLM.

    Attributes:
        model: a bundled configuration's name, a local folder, or a hub name.
        weights: "auto" (dummy where the folder has no weights), "dummy" or "load".
        mode: "cuda-graphs" (torch.compile and CUDA graphs, vLLM's default) or "eager".
        process: "inline" (engine in this process) or "spawn" (in its own).
        tensor_parallel: number of GPUs.
        dtype: of weights and activations, "auto" takes the configuration's.
        max_model_len: most tokens of a sequence.
        max_num_seqs: most sequences of a step.
        max_num_batched_tokens: most tokens of a step.
        gpu_memory_utilization: share of the GPU's memory that vLLM may take.
        kv_cache_gib: size of the KV cache on each GPU in GiB, instead of what is left.
        attention_backend: FLASH_ATTN, TRITON_ATTN, …
        capture_sizes: batch sizes that CUDA graphs are captured for; none: vLLM's own.
        profiler: prepare start_profile and stop_profile (CUDA profiler API, step ranges).
        nvtx_scopes: add vLLM's NVTX ranges of scheduler, forward and sampling.
        layer_ranges: add vLLM's NVTX ranges of layers and modules (eager only).
        images: most images of a request; 0: text alone.
        speculative_tokens: drafted in a step for each request; 0: none.
        draft: what drafts them: "eagle" (a made-up head) or "ngram".
        accept: mean tokens that a step with drafts gives each request, the model's own included.
        adapters: LoRA adapters with made-up weights, which requests take in turn.
        adapter_rank: of all of them.
        adapter_modules: matrices that they change, by vLLM's names.
        seed: of dummy weights and sampling.
        extra: more arguments of vllm.LLM by name.
    """

    model: str = "qwen2.5-7b"
    weights: str = "auto"
    mode: str = "cuda-graphs"
    process: str = "inline"
    tensor_parallel: int = 1
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float = 0.85
    kv_cache_gib: float | None = None
    attention_backend: str | None = None
    capture_sizes: tuple[int, ...] = ()
    profiler: bool = False
    nvtx_scopes: bool = False
    layer_ranges: bool = False
    images: int = 0
    speculative_tokens: int = 0
    draft: str = EAGLE
    accept: float | None = None
    adapters: int = 0
    adapter_rank: int = 16
    adapter_modules: tuple[str, ...] = ADAPTED
    seed: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_processes(self) -> bool:
        """Whether the engine has processes besides this one."""
        return self.process == "spawn" or self.tensor_parallel > 1


def add_engine_arguments(parser: ArgumentParser, without: Collection[str] = ()) -> None:
    """Add the options of the engine; `engine_options` turns what was given into EngineOptions.

    Args:
        parser: gets a group of options.
        without: fields of EngineOptions that get no option: the caller sets them.
    """
    own = EngineOptions()
    group = parser.add_argument_group("engine")

    def add(field_name: str, text: str, flag: str = "", **more: Any) -> None:
        if field_name in without:
            return
        default = getattr(own, field_name)
        if "action" not in more:
            more.setdefault("default", default)
            text += f" ({default})" if default not in (None, ()) else ""
        group.add_argument(
            *(flag or f"--{field_name.replace('_', '-')}").split(),
            dest=field_name,
            help=text,
            **more,
        )

    add("model", f"bundled ({', '.join(bundled())}), a local folder, or a hub name")
    text = "dummy makes them up; auto does where a folder has none"
    add("weights", text, flag="--weights --load-format", choices=WEIGHTS)  # vLLM's own word too
    add("mode", "torch.compile and CUDA graphs, or eager", choices=MODES)
    add("process", "where the engine runs", flag="--engine", choices=PROCESSES)
    add("tensor_parallel", "GPUs", type=positive, metavar="N")
    add("dtype", "of weights and activations")
    add("max_model_len", "most tokens of a sequence", type=positive, metavar="N")
    add("max_num_seqs", "most sequences of a step", type=positive, metavar="N")
    add("max_num_batched_tokens", "most tokens of a step", type=positive, metavar="N")
    add("gpu_memory_utilization", "share of the GPU's memory to take", type=_share, metavar="X")
    add("kv_cache_gib", "KV cache of each GPU in GiB, instead of what is left", type=_size)
    add("attention_backend", "FLASH_ATTN, TRITON_ATTN, …; vLLM's choice if not given")
    add("capture_sizes", "batch sizes of CUDA graphs", type=positive, nargs="+", metavar="N")
    add("nvtx_scopes", "NVTX ranges of scheduler, forward, sampling", action="store_true")
    add("layer_ranges", "NVTX ranges of layers; needs --mode eager", action="store_true")
    text = "tokens that are drafted in a step for each request"
    add("speculative_tokens", text, type=whole, metavar="N")
    text = "what drafts them: a made-up head, or n-grams of prompts that repeat themselves"
    add("draft", text, choices=(EAGLE, NGRAM))
    text = "mean tokens that such a step gives each request, from 1; there is no default"
    add("accept", text, type=_tokens, metavar="X")
    add("adapters", "made-up LoRA adapters, taken in turn", type=whole, metavar="N")
    add("adapter_rank", "of the adapters", type=positive, metavar="N")
    add("adapter_modules", "what they change", choices=ADAPTED, nargs="+")
    add("seed", "of weights, prompts and sampling", type=int)
    add("extra", "more arguments of vllm.LLM, as JSON", flag="--engine-args", type=_mapping)


def engine_options(given: Namespace, **changes: Any) -> EngineOptions:
    """Return the options that a command line gave, some of them changed."""
    named = {f.name for f in fields(EngineOptions)}
    values = {name: value for name, value in vars(given).items() if name in named}
    values["capture_sizes"] = tuple(values.get("capture_sizes") or ())
    values["adapter_modules"] = tuple(values.get("adapter_modules") or ADAPTED)
    return EngineOptions(**{**values, **changes})


def _number(highest: float, what: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")  # which is in no range
        if not 0 < value <= highest or value == float("inf"):
            raise ArgumentTypeError(f"{text!r} is not {what}")
        return value

    return read


_share = _number(1.0, "a share above 0 and up to 1")
_size = _number(float("inf"), "a size above 0")
_tokens = _number(float("inf"), "a number of tokens above 0")


def _mapping(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ArgumentTypeError(f"{text!r} is not a JSON object")
    return value
