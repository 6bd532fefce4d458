"""Keeps a GPU busy in steps of a fake engine that has the classes of vLLM 0.20."""

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from nsight_prof.targets.serving.busy_gpu import CALIBRATED_CYCLES, BusyGpu

LAYERS, TOKENS = 4, 1000
BACKEND, RUNNER = "vllm.v1.attention.backends.flash_attn", "vllm.v1.worker.gpu_model_runner"


class Event:
    """An event of a GPU on which the calibration takes 10 ms."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def elapsed_time(self, end: "Event") -> float:
        assert isinstance(end, Event)
        return 10.0


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a runner of fake vLLM, and the cycles that its GPU slept."""
    slept: list[int] = []

    class Attention:
        def forward(self, layer: int, *tensors: int, output: int) -> str:
            assert (layer, len(tensors), output) == (0, 5, 7)
            return "attended"

    class Runner:
        in_graph = False

        def _model_forward(self, input_ids: int) -> list[str]:
            metadata = SimpleNamespace(num_actual_tokens=TOKENS)
            return [] if self.in_graph else [
                Attention().forward(0, 1, 2, 3, 4, metadata, output=7)  # type: ignore[arg-type]
                for _ in range(LAYERS)
            ]  # fmt: skip

    torch = ModuleType("torch")
    torch.cuda = SimpleNamespace(_sleep=slept.append, Event=Event)  # type: ignore[attr-defined]
    backend, runner = ModuleType(BACKEND), ModuleType(RUNNER)
    backend.FlashAttentionImpl, runner.GPUModelRunner = Attention, Runner  # type: ignore[attr-defined]
    for name, module in (("torch", torch), (BACKEND, backend), (RUNNER, runner)):
        monkeypatch.setitem(sys.modules, name, module)
    return SimpleNamespace(runner=Runner(), slept=slept)


def test_a_gpu_is_busy_for_the_step_of_the_whole_model_and_only_while_it_is_asked_to(
    engine: Any,
) -> None:
    busy = BusyGpu(LAYERS, step_s=4e-3, token_s=8e-6)
    busy.install()
    per_s = busy.calibrate()
    assert per_s == pytest.approx(CALIBRATED_CYCLES / 10e-3)
    engine.slept.clear()
    assert engine.runner._model_forward(input_ids=1) == ["attended"] * LAYERS  # noqa: SLF001
    assert engine.slept == []
    busy.on = True
    engine.runner._model_forward(input_ids=1)  # noqa: SLF001
    assert len(engine.slept) == LAYERS  # a prompt: each layer has its part
    assert sum(engine.slept) / per_s == pytest.approx(TOKENS * 8e-6)
    engine.slept.clear()
    engine.runner.in_graph = True  # a step that generates: nothing of it runs in Python
    engine.runner._model_forward(input_ids=1)  # noqa: SLF001
    assert [cycles / per_s for cycles in engine.slept] == pytest.approx([4e-3])
