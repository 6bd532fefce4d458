"""Architectures whose sizes, inputs or stages differ from the usual, of a config.json alone."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "transformers", "PIL")),
    reason="transformers is not installed (pip install 'nsight-prof[inference]')",
)
WIDTHS = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
TOWER = {**WIDTHS, "num_attention_heads": 2, "image_size": 56, "patch_size": 14}
LLAMA = {**WIDTHS, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300}
PAIR = {
    "text_config": {
        **{**WIDTHS, "num_attention_heads": 2, "vocab_size": 300},
        "max_position_embeddings": 16,
    },
    "vision_config": TOWER,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "LlavaForConditionalGeneration": {
        "model_type": "llava",
        "image_token_index": 299,
        "text_config": {"model_type": "llama", **LLAMA},
        "vision_config": {"model_type": "clip_vision_model", **TOWER},
    },
    "InternVLForConditionalGeneration": {
        "model_type": "internvl",
        "image_token_id": 299,
        "text_config": {"model_type": "qwen2", **LLAMA},
        "vision_config": {
            **{"model_type": "internvl_vision", **TOWER},
            **{"image_size": [56, 56], "patch_size": [14, 14]},
        },
    },
    "CLIPModel": {"model_type": "clip", **PAIR},
    "SiglipModel": {"model_type": "siglip", **PAIR},
    "Dinov2Model": {"model_type": "dinov2", **TOWER},
    "MambaForCausalLM": {
        **{"model_type": "mamba", "hidden_size": 64, "state_size": 8},
        **{"num_hidden_layers": 2, "vocab_size": 300},
    },
}
SEES = {"preprocess", "vision_encoder", "postprocess"}


def run(folder: Path, architecture: str, *arguments: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the records of a run on a CPU, and the counts of its stages."""
    from nsight_prof.targets.inference.run import main

    config = {**CONFIGS[architecture], "architectures": [architecture]}
    (folder / "config.json").write_text(json.dumps(config))
    words = ["--model", str(folder), "--device", "cpu", "--dtype", "float32", "--warmups", "0"]
    words += ["--batch", "2", "--repeats", "1", "--output-tokens", "3", *arguments]
    assert main([*words, "--out", str(folder / "result.jsonl")]) == 0
    records = [json.loads(line) for line in (folder / "result.jsonl").read_text().splitlines()]
    counted = json.loads((folder / "static_compute.json").read_text())
    return records, {row["stage"]: row for row in counted["stages"]}


@pytest.mark.parametrize(
    ("architecture", "stages"),
    [
        ("LlavaForConditionalGeneration", {*SEES, "projector", "prefill", "decode"}),
        ("InternVLForConditionalGeneration", {*SEES, "projector", "prefill", "decode"}),
        ("CLIPModel", {*SEES, "encoder", "projector", "head"}),
        ("SiglipModel", {*SEES, "encoder", "head"}),
        ("Dinov2Model", SEES),
    ],
)
def test_images_have_the_size_that_the_configuration_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], architecture: str, stages: set[str]
) -> None:
    (_, case), counts = run(tmp_path, architecture, "--images", "1", "--image-size", "80x64")
    found = json.loads(capsys.readouterr().out)
    assert set(found["stages_s"]) == stages
    assert counts["vision_encoder"]["weight_bytes"] > 0
    # 4 x 4 patches of 14 x 14 x 3 values in each of 2 pictures: their convolution alone
    assert counts["vision_encoder"]["flops"] > 2 * 2 * 16 * (14 * 14 * 3) * 32
    encodes_text = "encoder" in stages
    # An encoder has positions for 16 tokens; the 128 that are the default do not fit.
    assert case["params"]["prompt_tokens"] == (16 if encodes_text else 128)


def test_a_decode_step_reads_the_states_of_a_model_without_attention(tmp_path: Path) -> None:
    _, counts = run(tmp_path, "MambaForCausalLM", "--prompt-tokens", "5")
    # 2 layers, 2 sequences, 128 channels (2 x hidden): 4 values of the convolution, 8 of the state.
    assert counts["decode"]["calls"] == 2
    assert counts["decode"]["kv_bytes"] == 2 * (2 * 2 * 128 * (4 + 8) * 4)
