"""The vision encoder and the projector of a model in vLLM: their ranges, and their work.

vLLM runs both within the step of a prefill, and has no range of them. Their `forward` is wrapped:
classes that vLLM may compile call it past the hooks of torch (vLLM 0.20.2, the merger of Qwen VL).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from nsight_prof.targets.inference.stages import MODULES, stage_modules
from nsight_prof.targets.static_compute import Count


class Encoder:
    """What a model has before its language model."""

    def __init__(self, model: Any) -> None:
        """Wrap the modules of `model` that are stages of their own, by their names."""
        self._model = model
        self._open: list[str] = []
        self._count: Count | None = None
        for name, stage in stage_modules(model, MODULES).items():
            module = model.get_submodule(name)
            module.forward = self._within(stage, module.forward)

    def work(self, run: Callable[[], object], model: str) -> dict[str, Any]:
        """Return FLOPs and weights of both while `run` runs, as static_compute.json has them.

        Without those of single modules: the calls of the outer ones are not seen.
        """
        self._count = counted = Count(self._model)
        try:
            run()
        finally:
            self._count = None
        found = counted.result({"model": model, "device": "cuda"})
        del found["modules"]
        return found

    def _within(self, stage: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with torch.cuda.nvtx.range(stage), self._counted(stage):
                return forward(*args, **kwargs)

        return call

    @contextmanager
    def _counted(self, stage: str) -> Iterator[None]:
        """Count to the innermost stage; the language model is not counted."""
        count = self._count
        if count is None:
            yield
            return
        with nullcontext() if self._open else count:
            self._open.append(stage)
            count.enter(stage)
            try:
                yield
            finally:
                self._open.pop()
                count.enter(self._open[-1] if self._open else "")
