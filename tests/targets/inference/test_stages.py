"""Stages of a toy model: one at a time, whichever module runs."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")

import torch  # noqa: E402

from nsight_prof.targets.inference import stages  # noqa: E402


class Vision(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.vision_tower = torch.nn.Linear(2, 2)  # inside of the same stage: counts once
        self.merger = torch.nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return self.merger(self.vision_tower(x)) + 1


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.visual = Vision()
        self.text = torch.nn.Linear(2, 2)

    def forward(self, x: Any, image: Any = None) -> Any:
        return self.text(x if image is None else x + self.visual(image))


class Ranges:
    """Stands for the package nvtx."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def push_range(self, name: str) -> None:
        self.said.append(name)

    def pop_range(self) -> None:
        self.said.append("/")


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> Ranges:
    found = Ranges()
    monkeypatch.setattr(stages, "nvtx", found)
    return found


def test_a_module_that_is_a_stage_interrupts_the_one_that_calls_it(ranges: Ranges) -> None:
    model, watched = Model(), stages.Stages("cpu")
    assert watched.watch(model, stages.MODULES, None) == {
        "visual": "vision_encoder",
        "visual.merger": "projector",
    }
    x = torch.ones(1, 2)
    with watched.request():
        watched.enter("prefill")
        model(x, x)
        model(x)
        model(x)
        watched.enter("postprocess")
    steps = "decode step / step / /"
    assert " ".join(ranges.said) == (
        f"prefill / vision_encoder / projector / vision_encoder / prefill / {steps} postprocess /"
    )
    took = watched.seconds()
    assert set(took) == {"prefill", "vision_encoder", "projector", "decode", "postprocess"}
    assert min(took.values()) > 0


def test_outside_of_a_request_no_stage_is_told(ranges: Ranges) -> None:
    model, watched = Model(), stages.Stages("cpu")
    watched.watch(model, {"text": "te.t"}, None)
    model(torch.ones(1, 2))
    assert ranges.said == []


def test_a_request_that_fails_leaves_no_range_open(ranges: Ranges) -> None:
    model, watched = Model(), stages.Stages("cpu")
    watched.watch(model, stages.MODULES, None)

    def request() -> None:
        with watched.request():
            watched.enter("prefill")
            model(torch.ones(1, 2), torch.ones(1, 3))

    with pytest.raises(RuntimeError):
        request()
    assert ranges.said.count("/") == len(ranges.said) / 2
