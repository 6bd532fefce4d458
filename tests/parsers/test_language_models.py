"""The language model of configurations that have a vision encoder."""

import json
from pathlib import Path

import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.serving.model_shape import model_shape
from nsight_prof.parsers.serving.stored_weights import sees, stored_shape


@pytest.mark.parametrize(("name", "billions"), [("qwen2.5-vl-7b", 7.616), ("qwen3-vl-8b", 8.191)])
def test_the_decoder_has_the_parameters_of_the_model_without_its_encoder(
    root: Path, name: str, billions: float
) -> None:
    """As the models of text alone of these sizes are published: Qwen2.5-7B, Qwen3-8B."""
    config = json.loads((root / "targets/inference/configs" / name / "config.json").read_text())
    assert sees(config)
    shape = stored_shape(config)
    assert shape.parameters() / 1e9 == pytest.approx(billions, abs=0.001)
    assert shape.dtype == "bfloat16"
    flat = {**config, **config["text_config"], "model_type": config["model_type"]}
    del flat["text_config"]  # as files of older versions of transformers are
    assert stored_shape(flat) == shape
    # What is predicted is a whole model: there an encoder is refused.
    with pytest.raises(ArtifactUnreadable):
        model_shape(config)


def test_others_stay_as_they_are_or_are_refused(root: Path) -> None:
    plain = json.loads((root / "targets/serving/configs/qwen2.5-7b/config.json").read_text())
    assert not sees(plain)
    assert stored_shape(plain) == model_shape(plain)
    with pytest.raises(ArtifactUnreadable, match="model type"):
        stored_shape({"model_type": "idefics3", "vision_config": {}, "text_config": {}})
