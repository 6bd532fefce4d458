"""Keeps the GPU of a narrow engine busy for as long as the steps of the whole model take.

A narrow engine never waits for its GPU, so that its core never rests; the host of an engine that
serves waits in most steps, and is slower for it (docs/accuracy.md). So each layer of a prompt
spins on the GPU (`torch.cuda._sleep`) for its part of the step, and a step that is one CUDA graph
spins behind it. The host launches one small kernel more for each layer of a prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

CALIBRATED_CYCLES = 20_000_000
"""Some 10 ms: how many cycles a second has is measured by them."""


@dataclass
class BusyGpu:
    """Spins in an engine of this process that has FlashAttention; `on` says whether it does.

    Attributes:
        layers: of the engine.
        step_s: least time that it spins in a step: the whole model reads all weights meanwhile.
        token_s: of each token of a step, where these take longer.
    """

    layers: int
    step_s: float
    token_s: float
    on: bool = False
    _cycles_per_s: float = 0.0
    _spun: bool = False

    def install(self) -> None:
        """Let the attention of each layer, and each step, spin; call it before the engine starts.

        Raises:
            ImportError, AttributeError: this vLLM has neither where they are looked for.
        """
        backend: Any = import_module("vllm.v1.attention.backends.flash_attn")
        attention: Any = backend.FlashAttentionImpl
        runner: Any = import_module("vllm.v1.worker.gpu_model_runner").GPUModelRunner
        attend, forward = attention.forward, runner._model_forward  # noqa: SLF001

        def attends(impl: Any, *args: Any, **named: Any) -> Any:
            if self.on:
                metadata: Any = named.get("attn_metadata", args[5] if len(args) > 5 else None)
                self._spin(self.seconds(metadata.num_actual_tokens) / self.layers)
                self._spun = True
            return attend(impl, *args, **named)

        def forwards(self_: Any, *args: Any, **named: Any) -> Any:
            self._spun = False
            found = forward(self_, *args, **named)
            if self.on and not self._spun:  # one CUDA graph: nothing of it ran in Python
                self._spin(self.seconds(1))
            return found

        attention.forward, runner._model_forward = attends, forwards  # noqa: SLF001

    def seconds(self, tokens: int) -> float:
        """Return how long the GPU spins for a step, beside what its narrow layers take."""
        return max(self.step_s, tokens * self.token_s)

    def _spin(self, seconds: float) -> None:
        torch: Any = import_module("torch")
        torch.cuda._sleep(round(seconds * self._cycles_per_s))  # noqa: SLF001

    def calibrate(self) -> float:
        """Measure and return how many cycles of the GPU pass in a second while it works."""
        torch: Any = import_module("torch")
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(3):  # the clock of an idle GPU is low at first
            begin.record()
            torch.cuda._sleep(CALIBRATED_CYCLES)  # noqa: SLF001
            end.record()
            end.synchronize()
        self._cycles_per_s = CALIBRATED_CYCLES / (begin.elapsed_time(end) / 1e3)
        return self._cycles_per_s
