"""Models of Hugging Face's transformers, tiny ones of made-up weights, run as a file on a CPU."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "transformers", "PIL")),
    reason="transformers is not installed (pip install 'nsight-prof[inference]')",
)
WIDTH = {"text_config.hidden_size": 128, "vision_config.out_hidden_size": 128}
TEXT = {
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
QWEN = {
    **WIDTH,
    **{f"text_config.{key}": value for key, value in TEXT.items()},
    "text_config.rope_parameters.mrope_section": "[4,6,6]",
    "vision_config.hidden_size": 64,
    "vision_config.num_heads": 4,
    "vision_config.depth": 2,
    "vision_config.intermediate_size": 64,
    "vision_config.fullatt_block_indexes": "[1]",
}
LLAMA = {**TEXT, "hidden_size": 128, "head_dim": 32}
WHISPER = {
    **dict.fromkeys(("d_model", "encoder_ffn_dim", "decoder_ffn_dim"), 64),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
}
SEEN = {"preprocess", "vision_encoder", "postprocess"}


def run(root: Path, out: Path, *arguments: str, **overrides: object) -> dict[str, object]:
    command = [sys.executable, str(root / "targets/inference/run.py"), "--device", "cpu"]
    command += ["--dtype", "float32", "--warmups", "0", "--repeats", "1", "--out", str(out)]
    if overrides:
        command += ["--override", *(f"{key}={value}" for key, value in overrides.items())]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("model", "overrides", "arguments", "stages"),
    [
        ("qwen2.5-vl-7b", QWEN, "--images 2 --image-size 112x84 --prompt-tokens 5",
         {*SEEN, "projector", "prefill", "decode"}),
        ("llama-3.1-8b", LLAMA, "--prompt-tokens 5",
         {"preprocess", "prefill", "decode", "postprocess"}),
        ("whisper-large-v3", WHISPER, "--audio-seconds 1",
         {"preprocess", "encoder", "prefill", "decode", "postprocess"}),
        ("vit-base", {"num_hidden_layers": 1}, "--image-size 50x40", {*SEEN, "head"}),
        ("resnet-50", {"depths": "[1,1,1,1]"}, "--image-size 50x40", {*SEEN, "head"}),
    ],
)  # fmt: skip
def test_a_model_runs_from_its_configuration_alone(
    root: Path,
    tmp_path: Path,
    model: str,
    overrides: dict[str, object],
    arguments: str,
    stages: set[str],
) -> None:
    out = tmp_path / "result.jsonl"
    words = ["--model", model, "--batch", "2", "--output-tokens", "3", *arguments.split()]
    found = run(root, out, *words, **overrides)
    assert set(found["stages_s"]) == stages  # type: ignore[call-overload]
    conditions, case = map(json.loads, out.read_text().splitlines())
    assert conditions["record"] == "conditions"
    assert (case["status"], case["params"]["batch"]) == ("ok", 2)
    predictions = sorted((tmp_path / "predictions").iterdir())
    assert [path.name for path in predictions] == ["made-up-1.json", "made-up-2.json"]
    said = json.loads(predictions[0].read_text())
    assert len(said["tokens"]) == 3 if "decode" in stages else sum(said["classes"].values()) <= 1


# As published with the weights; transformers counts them on the meta device.
PARAMETERS = {
    "qwen2.5-vl-7b": 8_292_166_656,
    "qwen3-vl-8b": 8_767_123_696,
    "whisper-large-v3": 1_543_490_560,
    "vit-base": 86_567_656,
    "resnet-50": 25_557_032,
}


def test_bundled_configurations_have_the_parameters_of_the_published_models(root: Path) -> None:
    code = """
import sys, torch, transformers
from nsight_prof.targets.inference.model import CONFIGS, configuration, find_model
for name in sys.argv[1:]:
    config = configuration(find_model(name, folders=CONFIGS), [], False)
    with torch.device("meta"):
        model = getattr(transformers, config.architectures[0])(config)
    print(name, sum(p.numel() for p in model.parameters()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *PARAMETERS],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
    )
    assert done.returncode == 0, done.stderr
    counted = dict(line.split() for line in done.stdout.splitlines())
    assert {name: int(count) for name, count in counted.items()} == PARAMETERS


def test_what_does_not_fit_is_told_with_a_hint(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(root / "targets/inference/run.py"), "--device", "cpu"]
    for words, told in (
        (["--override", "no.such.key=1"], "fits no key of the config.json"),
        (["--model", "/no/such/folder"], "there is no folder"),
    ):
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert told in done.stderr
        assert "\nhint: " in done.stderr
