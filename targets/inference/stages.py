"""The stages of a request: one after another, as NVTX ranges and with their times.

A request is in one stage at any moment. A module that is a stage of its own (the vision encoder)
interrupts the stage that called it, which goes on behind it: the kernels of each stage are its own
alone, and the times of all stages add up to the request. Forward hooks tell where a module begins
and ends, so that the model stays as it is.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import torch

from nsight_prof.targets.static_compute import Count

try:
    import nvtx
except ImportError:  # then there are no ranges, and the program is still the same
    nvtx = None

# Whole names of modules, as Hugging Face's models call them; a module inside of one that is in the
# same stage does not count again.
VISION = r"(.*\.)?(visual|vision_tower|vision_model|vision_encoder|vision_backbone|image_encoder)"
PROJECTOR = (
    r"(.*\.)?(multi_modal_projector|mm_projector|vision_projector|image_projection|projector"
    r"|merger|connector|aligner|resampler|qformer|modality_projection"
    r"|visual_projection|text_projection)"
)
TEXT = r"(.*\.)?(text_model|text_encoder|language_model)"
MODULES: Mapping[str, str] = {"projector": PROJECTOR, "vision_encoder": VISION}
STEP, HOST = "step", "preprocess"
"""A call of the model in decode, and the stage whose work the host does, which is not counted."""


class Stages:
    """Divides requests into stages; within `decode` each call of the model is a range `step`.

    Attributes:
        counter: is told each stage and step that begins, and the KV cache of each step.
    """

    def __init__(self, device: str) -> None:
        self.counter: Count | None = None
        self._cuda = device == "cuda"
        self._stack: list[str] = []  # the last one counts; those before it were interrupted
        self._bounds: list[tuple[str | None, Any]] = []
        self._calls = 0

    @contextmanager
    def request(self) -> Iterator[None]:
        """Begin and end a request, whose first stage `enter` names."""
        self._bounds = []
        try:
            yield
        finally:
            self._to([])

    def enter(self, stage: str) -> None:
        """Begin the next stage of the request where the last one ends."""
        self._calls = 0
        self._to([stage])

    def seconds(self) -> dict[str, float]:
        """Return the time of each stage of the last request in s; waits for the GPU.

        On a GPU it is the time between CUDA events at the bounds of the stages.
        """
        if self._cuda:
            torch.cuda.synchronize()
        found: dict[str, float] = defaultdict(float)
        for (stage, begin), (_, end) in pairwise(self._bounds):
            if stage is not None:
                found[stage] += begin.elapsed_time(end) * 1e-3 if self._cuda else end - begin
        return dict(found)

    def watch(self, model: Any, modules: Mapping[str, str], encoder: str | None) -> dict[str, str]:
        """Hook the modules that are stages of their own, and the calls of the model.

        Args:
            model: a torch module.
            modules: stage -> regular expression of the whole names of its modules; the first
                that fits counts.
            encoder: the stage of the encoder of a model that has an encoder and a decoder; None
                for others.

        Returns:
            The names of the modules that were hooked -> their stages.
        """
        known = {} if encoder is None else {model.get_encoder(): encoder}
        hooked = stage_modules(model, modules, known)
        for name, stage in hooked.items():
            module = model.get_submodule(name)
            module.register_forward_pre_hook(self._beginner(stage))
            module.register_forward_hook(self._end, always_call=True)
        model.register_forward_pre_hook(self._call)
        model.register_forward_hook(self._called, always_call=True, with_kwargs=True)
        return hooked

    def _beginner(self, stage: str) -> Callable[..., None]:
        def begin(*_: object) -> None:
            if self._stack:
                self._to([*self._stack, stage])

        return begin

    def _end(self, *_: object) -> None:
        if self._stack:
            self._to(self._stack[:-1])

    def _call(self, *_: object) -> None:
        """The first call of the model is the prefill, each further one a decode step."""
        if self._stack == ["prefill"] and self._calls:
            self._to(["decode"])
        if self._stack == ["decode"]:
            self._to(["decode", STEP])
        self._calls += 1

    def _called(self, model: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        if self._stack[-1:] == [STEP]:
            if self.counter is not None:
                cache = kwargs.get("past_key_values") or kwargs.get("cache_params")
                self.counter.add_cache(_cached(cache))
            self._to(self._stack[:-1])

    def _to(self, stack: list[str]) -> None:
        """Go on with another stack: close the ranges that end, open those that begin."""
        old, new = _ranges(self._stack), _ranges(stack)
        same = len(os.path.commonprefix([old, new]))
        for _ in old[same:] if nvtx else ():
            nvtx.pop_range()
        self._stack = stack
        if self.counter is not None:
            self.counter.enter("" if new[:1] in ([], [HOST]) else new[0])
        if old[:1] != new[:1]:
            self._bounds.append((new[0] if new else None, self._now()))
        for name in new[same:] if nvtx else ():
            nvtx.push_range(name)

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def stage_modules(
    model: Any, modules: Mapping[str, str], known: Mapping[Any, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the names of the modules that are stages of their own -> their stages.

    Args:
        model: a torch module.
        modules: stage -> regular expression of the whole names of its modules; the first that
            fits counts.
        known: modules whose stage is known, whatever their names.
    """
    found: dict[str, str] = {}
    for name, module in model.named_modules():
        by_name = (s for s, of in modules.items() if re.fullmatch(of, name))
        stage = known.get(module) or next(by_name, None)
        outer = (of for at, of in found.items() if name.startswith(f"{at}."))
        if name and stage is not None and stage not in outer:
            found[name] = stage
    return found


def _ranges(stack: list[str]) -> list[str]:
    """Return the ranges that are open: the stage, and the step where it is in one."""
    return stack[-2:] if stack[-1:] == [STEP] else stack[-1:]


def _cached(cache: Any) -> list[Any]:
    """Return what a cache of transformers holds, of a decoder's both caches.

    Keys and values, and the states of convolutions and recurrences (Mamba, linear attention).
    """
    parts = [getattr(cache, f"{of}_attention_cache", None) for of in ("self", "cross")]
    layers = [layer for part in (*parts, cache) for layer in getattr(part, "layers", None) or ()]
    return [tensor for layer in layers for tensor in _tensors(vars(layer))]


def _tensors(value: Any) -> Iterator[Any]:
    """Give the tensors of a layer's cache, in mappings and sequences; integers are positions."""
    if isinstance(value, torch.Tensor):
        yield from [value] if value.is_floating_point() else []
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(inner)
