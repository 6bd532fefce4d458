"""Heads, n-grams and adapters that are made up beside a model."""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nsight_prof.parsers.serving.model_shape import Adapters, model_shape
from nsight_prof.targets.serving.additions import (
    adapter_sizes,
    additional_arguments,
    repeated_token,
    repeating,
    write_head,
)
from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.models import find_model
from nsight_prof.targets.serving.options import EngineOptions


def test_a_head_is_one_layer_of_the_model(tmp_path: Path) -> None:
    config = find_model("qwen3-32b").config
    assert config is not None
    folder = write_head(config, tmp_path / "head")
    head = model_shape(json.loads((folder / "config.json").read_text()))
    model = model_shape(config)
    layer = [(line.outputs, line.inputs) for line in model.with_layers(1).linears()]
    assert [(line.outputs, line.inputs) for line in head.linears()] == layer
    assert (head.layers, head.vocabulary) == (1, model.vocabulary)


def test_the_engine_is_told_what_is_made_up(tmp_path: Path) -> None:
    config = find_model("llama-3.1-8b").config
    drafts = EngineOptions(speculative_tokens=3, accept=2.4)
    found = additional_arguments(config, drafts, tmp_path)["speculative_config"]
    assert Path(found.pop("model"), "config.json").is_file()
    assert found == {
        "method": "eagle",
        "num_speculative_tokens": 3,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_length": 2.4,
    }
    assert additional_arguments(None, EngineOptions(), tmp_path) == {}


def test_n_grams_need_no_weights_of_their_own(tmp_path: Path) -> None:
    drafts = EngineOptions(speculative_tokens=3, draft="ngram", accept=2.4)
    found = additional_arguments(None, drafts, tmp_path)["speculative_config"]
    assert (found["method"], found["num_speculative_tokens"]) == ("ngram", 3)
    assert found["synthetic_acceptance_length"] == 2.4
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("length", [10, 16, 17, 300])
def test_n_grams_are_found_from_the_first_token_on(length: int) -> None:
    """Oracle: what vLLM 0.20 does, the earliest place of the last 5 tokens and 3 behind it."""
    tokens = repeating(list(range(100, 100 + length)), 7)
    assert len(tokens) == length
    for generated in range(1, 20):
        so_far = tokens + [7] * generated
        last = so_far[-5:]
        place = next(i for i in range(len(so_far)) if so_far[i : i + 5] == last)
        assert so_far[place + 5 : place + 8] == [7, 7, 7]


class _Rows:
    """A parameter: values that are filled in place, as those of torch."""

    def __init__(self) -> None:
        self.values = np.arange(12.0).reshape(4, 3)

    def __getitem__(self, rows: slice) -> SimpleNamespace:
        part = self.values[rows]
        alone = SimpleNamespace(expand_as=lambda other: np.broadcast_to(part, other.values.shape))
        return SimpleNamespace(clone=lambda: alone)

    def copy_(self, values: np.ndarray[Any, Any]) -> None:
        self.values[:] = values.copy()


def test_a_model_gives_the_same_token_once_all_are_embedded_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The embedding alone is changed, and the token is the one that it then gives."""
    named = {name: type(name, (), {"weight": _Rows()})() for name in
             ("VocabParallelEmbedding", "ParallelLMHead")}  # fmt: skip
    model = SimpleNamespace(modules=lambda: named.values())
    torch = SimpleNamespace(inference_mode=nullcontext)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))

    def apply_model(change: Callable[[object], None]) -> None:
        change(model)

    def generate(*_: object, **__: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=[5, 7, 7])])]

    assert repeated_token(SimpleNamespace(apply_model=apply_model, generate=generate)) == 7
    embedding, head = (named[name].weight.values for name in named)
    assert (embedding == embedding[0]).all()
    assert not (head == head[0]).all()


def test_an_adapter_has_as_many_values_as_are_predicted() -> None:
    config = find_model("llama-3.1-8b").config
    assert config is not None
    modules = ("qkv_proj", "down_proj")
    sizes = list(adapter_sizes(config, modules))
    assert [path for path, _, _ in sizes] == [
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.down_proj"
    ]  # fmt: skip
    adapters = Adapters(count=1, rank=16, modules=modules)
    predicted = sum(map(adapters.values, model_shape(config).linears()))
    assert sum(16 * (outputs + inputs) for _, outputs, inputs in sizes) == predicted


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("llama-3.1-8b", EngineOptions(speculative_tokens=3), "is not given"),
        ("deepseek-v2-lite", EngineOptions(adapters=2), "are not known"),
        (
            "llama-3.1-8b",
            EngineOptions(speculative_tokens=3, accept=2, draft="ngram", tensor_parallel=2),
            "in this process",
        ),
    ],
)
def test_what_cannot_be_made_up_is_refused(
    name: str, options: EngineOptions, said: str, tmp_path: Path
) -> None:
    with pytest.raises(EngineFailure, match=said):
        additional_arguments(find_model(name).config, options, tmp_path)
