"""The vision encoder of a model as vLLM runs it: its ranges, and its work counted by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")

import torch  # noqa: E402

from nsight_prof.targets.serving.encoder import Encoder  # noqa: E402

WIDTH, HEADS, OUT = 8, 2, 16


def packed_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch_size: int, bounds: torch.Tensor
) -> torch.Tensor:
    """Stand in for vLLM's operator of this name: sequences one behind the other."""
    return q.clone()


torch.library.custom_op("vllm::flash_attn_maxseqlen_wrapper", packed_attention, mutates_args=())


class Merger(torch.nn.Module):  # type: ignore[misc]
    """As vLLM's support_torch_compile makes classes: a call goes past the hooks of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = torch.nn.Linear(WIDTH, OUT, bias=False)

    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    def forward(self, x: Any) -> Any:
        return self.mlp(x)


class Visual(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.proj = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.merger = Merger()

    def forward(self, x: Any, bounds: Any) -> Any:
        heads = self.proj(x).view(1, -1, HEADS, WIDTH // HEADS)
        packed = torch.ops.vllm.flash_attn_maxseqlen_wrapper(heads, heads, heads, 1, bounds)
        return self.merger(packed.view(x.shape))


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.visual = Visual()
        self.language_model = torch.nn.Linear(OUT, OUT)

    def forward(self, x: Any, bounds: Any) -> Any:
        return self.language_model(self.visual(x, bounds))


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the NVTX ranges that are opened and closed."""
    seen: list[str] = []

    @contextmanager
    def range_(name: str) -> Iterator[None]:
        seen.append(name)
        yield
        seen.append(f"/{name}")

    monkeypatch.setattr(torch.cuda.nvtx, "range", range_)
    return seen


def test_work_is_that_of_encoder_and_projector_alone(ranges: list[str]) -> None:
    model, tokens = Model(), torch.zeros(10, WIDTH)
    encoder, bounds = Encoder(model), torch.tensor([0, 6, 10], dtype=torch.int32)
    with torch.inference_mode():
        model(tokens, bounds)
        found = encoder.work(lambda: [model(tokens, bounds) for _ in range(2)], "toy")
    assert ranges[:4] == ["vision_encoder", "projector", "/projector", "/vision_encoder"]
    vision, projector = found["stages"]
    attention = 2 * HEADS * (6 * 6 + 4 * 4) * 2 * (WIDTH // HEADS)
    assert (vision["stage"], vision["calls"]) == ("vision_encoder", 2)
    assert vision["flops"] == 2 * (2 * 10 * WIDTH * WIDTH + attention)
    assert vision["weight_bytes"] == 2 * WIDTH * WIDTH * 4
    assert projector["flops"] == 2 * (2 * 10 * WIDTH * OUT)
    assert projector["weight_bytes"] == 2 * WIDTH * OUT * 4
    assert found["parameters"] == sum(p.numel() for p in model.parameters())


def test_an_error_of_the_model_ends_the_counting(ranges: list[str]) -> None:
    model, bounds = Model(), torch.tensor([0, 10])
    encoder = Encoder(model)
    with pytest.raises(RuntimeError):
        encoder.work(lambda: model(torch.zeros(10, WIDTH + 1), bounds), "toy")
    with torch.inference_mode():
        found = encoder.work(lambda: model(torch.zeros(10, WIDTH), bounds), "toy")
    assert [stage["stage"] for stage in found["stages"]] == ["vision_encoder", "projector"]
