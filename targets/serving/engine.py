"""Starts vLLM's offline engine, times what it does step by step, and ends it.

All requests of a batch are added before the first step, so that a batch in this process begins
with one clean prefill (as far as max_num_batched_tokens lets it).
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nsight_prof.targets.serving import hooks
from nsight_prof.targets.serving.additions import (
    adapters,
    additional_arguments,
    repeated_token,
    repeating,
)
from nsight_prof.targets.serving.child_log import ChildLog
from nsight_prof.targets.serving.environment import prepare
from nsight_prof.targets.serving.facts import engine_facts, hf_config
from nsight_prof.targets.serving.failures import EngineFailure, explain
from nsight_prof.targets.serving.generation import Generation, RequestTimes, StepTimes, run_batch
from nsight_prof.targets.serving.images import image_prompt, prepare_images
from nsight_prof.targets.serving.inputs import random_prompts
from nsight_prof.targets.serving.models import (
    CONFIGS,
    SEEING,
    Model,
    find_model,
    vocabulary,
)
from nsight_prof.targets.serving.options import (
    NGRAM,
    EngineOptions,
    add_engine_arguments,
    engine_options,
)
from nsight_prof.targets.serving.records import BEGIN

__all__ = [
    "Engine",
    "EngineOptions",
    "Generation",
    "RequestTimes",
    "StepTimes",
    "add_engine_arguments",
    "engine_options",
    "make_engine",
]


class Engine:
    """A started engine; `make_engine` makes it. Methods raise EngineFailure where vLLM fails."""

    def __init__(
        self, options: EngineOptions, model: Model, begin: float, log: ChildLog | None
    ) -> None:
        self.options, self.model = options, model
        self._begin, self._log = begin, log
        self._llm: Any = None
        self._ended: Any = None
        self._names = (f"batch{number}" for number in itertools.count())
        self._facts: dict[str, Any] = {}
        self._made_up: tempfile.TemporaryDirectory[str] | None = None
        self._encoder: Any = None
        self._adapters: list[Any] = []
        self._repeated: int | None = None

    def start(self) -> None:
        """Import vLLM, check its hooks and start the engine; see `make_engine`."""
        options, started = self.options, time.monotonic()
        with self._explained("starting"):
            self._vllm = hooks.import_vllm()
            version = str(getattr(self._vllm, "__version__", "unknown"))
            wanted = hooks.engine_arguments(options, *self._prepared())
            if options.speculative_tokens or options.adapters:
                wanted |= additional_arguments(self.model.config, options, self._folder())
            arguments, missing = hooks.fit(self._vllm, wanted, version)
            hooks.check_class(self._vllm.LLM, options, version)
            asked = {k: _without_model(v) for k, v in arguments.items() if k != "model"}
            self._llm = self._vllm.LLM(**arguments)
            if options.adapters:
                self._adapters = adapters(options.adapters, self._folder())
            if options.speculative_tokens and options.draft == NGRAM:
                self._repeated = repeated_token(self._llm)
            self._engine = hooks.stepping_engine(self._llm, version)
            config = self.model.config or hf_config(self._llm)
            if options.images and not options.has_processes:
                self._encoder = hooks.watch_encoder(self._llm)
        for name in missing:
            print(f"note: vLLM {version} has no {name}", file=sys.stderr)
        self._vocabulary = vocabulary(config or {})
        self._facts = {
            "version": version,
            "model": self.model.name,
            "model_config": config,
            "tensor_parallel": options.tensor_parallel,
            "mode": options.mode,
            "engine_process": options.process,
            "gpu_memory_utilization": options.gpu_memory_utilization,
            "load_format": self.model.load_format,
            "dummy_weights": self.model.dummy,
            "start_s": time.monotonic() - started,
            "args": asked,
            "missing_hooks": missing,
            **engine_facts(self._llm, self._log.text() if self._log else ""),
        }

    def _prepared(self) -> tuple[Model, str | None]:
        """Return the model with what it needs to take images, and the tokenizer for that."""
        if not self.options.images:
            return self.model, None
        prepared = prepare_images(self.model, self._folder())
        return prepared.model, prepared.tokenizer

    def _folder(self) -> Path:
        """Return the folder for what is made up beside the model; it goes with the engine."""
        if self._made_up is None:
            self._made_up = tempfile.TemporaryDirectory(prefix="prof-made-up-")
        return Path(self._made_up.name)

    def generate(
        self,
        batch: int,
        prompt_tokens: int,
        output_tokens: int,
        seed: int = 0,
        on_step: Callable[[StepTimes], None] | None = None,
        images: Sequence[list[Any]] = (),
    ) -> Generation:
        """Generate exactly `output_tokens` tokens for each of `batch` random prompts.

        Args:
            batch: requests, all added before the first step.
            prompt_tokens: length of each prompt.
            output_tokens: tokens that each gives.
            seed: of the prompts.
            on_step: called after each engine step; its time belongs to the next step.
            images: of each request, before its text; they are preprocessed before the batch begins.

        Raises:
            EngineFailure: too long for the engine (it lives on, `dead` False), or it failed.
        """
        longest = self._facts.get("max_model_len")
        if longest is not None and prompt_tokens + output_tokens > longest:
            raise EngineFailure(
                f"{prompt_tokens} + {output_tokens} tokens are more than a sequence may have "
                f"({longest})",
                "a larger --max-model-len, as far as the model's configuration allows",
                "unsupported",
                dead=False,
            )
        if self._vocabulary is None:
            raise EngineFailure(
                "the model's configuration has no vocab_size", "prompts are random token ids"
            )
        ids = random_prompts(batch, prompt_tokens, self._vocabulary, seed)
        if self._repeated is not None:
            ids = [repeating(tokens, self._repeated) for tokens in ids]
        with self._explained(f"generating for a batch of {batch}"):
            prompts = [
                self._prompt(tokens, images[number % len(images)] if images else [])
                for number, tokens in enumerate(ids)
            ]
            params = hooks.sampling(self._vllm, output_tokens)
            return run_batch(
                self._engine,
                prompts,
                params,
                output_tokens,
                next(self._names),
                self._begin,
                on_step,
                self._adapters,
            )

    def _prompt(self, text: list[int], images: list[Any]) -> Any:
        if not images:
            return hooks.token_prompt(text)
        tokens = image_prompt(self._facts["model_config"] or {}, len(images), text)
        return hooks.image_prompt(self._llm, self._facts["version"], tokens, images)

    def encoder_work(self, run: Callable[[], object]) -> dict[str, Any]:
        """Return the work of the vision encoder while `run` generates; {} where it has none here.

        Raises:
            EngineFailure: vLLM failed meanwhile.
        """
        if self._encoder is None:
            return {}
        with self._explained("counting the work of the vision encoder"):
            counted: dict[str, Any] = self._encoder.work(run, self.model.name)
        return counted

    def facts(self) -> dict[str, Any]:
        """Return the fields of the `engine` record."""
        return dict(self._facts)

    def metrics(self) -> dict[str, float]:
        """Return vLLM's counters and gauges by name ("vllm:generation_tokens"), {} if none.

        Those with several sets of labels are summed.
        """
        values: dict[str, float] = {}
        for metric in self._snapshot():
            value = getattr(metric, "value", None)
            if isinstance(value, int | float):
                values[metric.name] = values.get(metric.name, 0.0) + float(value)
        return values

    def start_profile(self) -> None:
        """Let the profiler record from here on (options.profiler), and mark the steps."""
        with self._explained("starting the profiler"):
            self._llm.start_profile()

    def stop_profile(self) -> None:
        """End what start_profile began."""
        with self._explained("stopping the profiler"):
            self._llm.stop_profile()

    def close(self) -> None:
        """End the engine and its processes and give its GPU memory back; may be called twice.

        Where the engine has processes of its own, this one collects no garbage any more: the
        queues of vLLM's executor hold ZeroMQ contexts with open sockets in reference cycles, and
        collecting those waits for ever (pyzmq 27, vLLM 0.20.2 with tensor parallel ranks).
        """
        llm, self._llm, self._engine = self._llm, None, None
        if self._log is not None:
            gc.disable()
            self._ended = llm or self._ended
        if llm is not None:
            try:
                llm.llm_engine.engine_core.shutdown()
            except Exception as error:
                print(f"note: vLLM did not shut down: {error}", file=sys.stderr)
            del llm
            if self._log is None:
                gc.collect()
                _empty_cache()
        if self._log is not None:
            self._log.settle()
        if self._made_up is not None:
            self._made_up.cleanup()

    def _snapshot(self) -> list[Any]:
        try:
            return list(self._llm.get_metrics())
        except (AttributeError, AssertionError):  # no such hook, or statistics are off
            return []

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turn what vLLM raises into what it means."""
        try:
            yield
        except EngineFailure:
            raise
        except Exception as error:
            log = self._log.settle() if self._log is not None else ""
            raise explain(error, log, doing) from error


def make_engine(options: EngineOptions, begin: float | None = None) -> Engine:
    """Start vLLM's engine.

    Args:
        options: how.
        begin: the time.monotonic() that all times in seconds count from; None: the start of this
            process (records.BEGIN).

    Raises:
        EngineFailure: no vLLM, a version without a hook, no such model, out of memory, ….
    """
    model = find_model(options.model, options.weights, (CONFIGS, SEEING))
    prepare(model, options)
    log = ChildLog() if options.has_processes else None
    engine = Engine(options, model, BEGIN if begin is None else begin, log)
    try:
        engine.start()
    except BaseException:
        engine.close()
        raise
    return engine


def _without_model(value: Any) -> Any:
    """Return an argument without the folder of the head that it names, which is made up.

    vLLM adds objects of its own to a mapping that it is given, so that this is a copy.
    """
    if not isinstance(value, dict):
        return value
    return {key: item for key, item in value.items() if key != "model"}


def _empty_cache() -> None:
    """Give the GPU memory back that torch keeps, where torch is there and has used a GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    try:
        torch.cuda.empty_cache()
    except RuntimeError as error:  # after a CUDA error nothing works
        print(f"note: the GPU memory was not given back: {error}", file=sys.stderr)
