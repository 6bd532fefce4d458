"""Heads and adapters that are made up beside a model."""

import json
from pathlib import Path

import pytest

from nsight_prof.parsers.serving.model_shape import Adapters, model_shape
from nsight_prof.targets.serving.additions import adapter_sizes, additional_arguments, write_head
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
        ("llama-3.1-8b", EngineOptions(speculative_tokens=3), "was not said"),
        ("deepseek-v2-lite", EngineOptions(adapters=2), "are not known"),
    ],
)
def test_what_cannot_be_made_up_is_refused(
    name: str, options: EngineOptions, said: str, tmp_path: Path
) -> None:
    with pytest.raises(EngineFailure, match=said):
        additional_arguments(find_model(name).config, options, tmp_path)
