"""Starts vLLM's offline engine and times what it does, step by step."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MODES = ("cuda-graphs", "eager")
PROCESSES = ("inline", "spawn")


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
        capture_sizes: batch sizes that CUDA graphs are captured for.
        profiler: prepare start_profile and stop_profile (CUDA profiler API, step ranges).
        nvtx_scopes: add vLLM's NVTX ranges of scheduler, forward and sampling.
        layer_ranges: add vLLM's NVTX ranges of layers and modules (eager only).
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
    seed: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)


def add_engine_arguments(parser: ArgumentParser) -> None:
    """Add the options of the engine; `engine_options` turns what was given into EngineOptions."""
    raise NotImplementedError


def engine_options(given: Namespace, **changes: Any) -> EngineOptions:
    """Return the options that a command line gave, some of them changed."""
    raise NotImplementedError


@dataclass(frozen=True)
class RequestTimes:
    """One request; its fields are those of a `request` record. Seconds since the process began."""

    request: int
    prompt_tokens: int
    output_tokens: int
    arrival_s: float
    first_token_s: float | None
    finish_s: float | None
    token_times_s: tuple[float, ...]  # of each token, after arrival
    queue_s: float | None
    engine_ttft_s: float | None
    engine_tpot_s: float | None
    status: str  # "ok" or "failed"
    reason: str | None


@dataclass(frozen=True)
class StepTimes:
    """One engine step as the host timed it; its fields are those of a `step` record."""

    index: int
    t_s: float  # when the step returned
    seconds: float  # since the one before it returned
    outputs: int  # requests that got tokens in it
    tokens: int  # tokens that they got in it


@dataclass(frozen=True)
class Generation:
    """One batch: generated tokens of all requests added before the first step."""

    begin_s: float
    end_s: float
    requests: tuple[RequestTimes, ...]
    steps: tuple[StepTimes, ...]

    @property
    def seconds(self) -> float:
        """End to end: from before the first request is added to the return of the last step."""
        return self.end_s - self.begin_s


class Engine:
    """A started engine. Every method raises EngineFailure where vLLM fails."""

    def generate(
        self, batch: int, prompt_tokens: int, output_tokens: int, seed: int = 0
    ) -> Generation:
        """Generate exactly `output_tokens` tokens for each of `batch` random prompts."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Return the fields of the `engine` record."""
        raise NotImplementedError

    def metrics(self) -> dict[str, float]:
        """Return vLLM's counters and gauges by name ("vllm:generation_tokens"), {} if none."""
        raise NotImplementedError

    def start_profile(self) -> None:
        """Let the profiler record from here on (profiler=True)."""
        raise NotImplementedError

    def stop_profile(self) -> None:
        """End what start_profile began."""
        raise NotImplementedError

    def close(self) -> None:
        """End the engine and its processes and give its GPU memory back; may be called twice."""
        raise NotImplementedError


def make_engine(options: EngineOptions, begin: float | None = None) -> Engine:
    """Start vLLM's engine.

    Args:
        options: how.
        begin: the time.monotonic() that all times in seconds count from; None: this process's
            first import of this module.

    Raises:
        EngineFailure: no vLLM, a version without a hook, no such model, out of memory, ….
    """
    raise NotImplementedError
