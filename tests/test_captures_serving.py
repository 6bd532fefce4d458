"""Recorded servers and engines on an H100: images, files of requests, quantized checkpoints.

What prof counts is held to what follows from the model's configuration and from the file itself.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nsight_prof.parsers.cells import records
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine import stage_work
from nsight_prof.reports.engine.stages.kinds import Kind, Stages, stages_of
from nsight_prof.reports.studies.serving_load.points import load_test
from tests.sections import rows, table

Recorded = Callable[[str], Run]

DENSE = {"bf16": 989.4e12, "fp8": 1978.9e12}
"""FLOP/s of an H100 SXM by its datasheet, without sparsity."""


@pytest.fixture(scope="module")
def pages(recorded_run_of: Recorded) -> Run:
    return recorded_run_of("h100-vllm-pages")


def patches(run: Run) -> int:
    """Patches of the images of the batch: four for each token that stands for them."""
    (point,) = {row["case"]: row for row in records(run.serving_points) if row["traced"]}.values()
    prompts = run.requests[run.requests["traced"].fillna(False).astype(bool)]["prompt_tokens"]
    places = prompts - point["prompt_tokens"] - 2  # besides the text and the ends of the image
    return 4 * int(places.sum())


def test_the_work_of_the_encoder_is_that_of_its_configuration(pages: Run, root: Path) -> None:
    folder = root / "targets/inference/configs/qwen2.5-vl-7b"
    vision = json.loads((folder / "config.json").read_text())["vision_config"]
    width, inner = vision["hidden_size"], vision["intermediate_size"]
    squared = vision["spatial_merge_size"] ** 2 * width
    of_patch = vision["depth"] * (4 * width**2 + 3 * width * inner)  # QKV, O, gate, up, down
    counted = {row["stage"]: row for row in records(pages.stage_work)}
    file = json.loads((pages.path / "steps/1-trace/static_compute.json").read_text())
    by_operator = {(o["stage"], o["operator"]): o["flops"] for o in file["operators"]}
    n = patches(pages)
    assert by_operator["vision_encoder", "aten.addmm"] == 2 * n * of_patch
    out = vision["out_hidden_size"]
    assert counted["projector"]["flops"] == 2 * (n // 4) * (squared * squared + squared * out)
    # A few layers see all patches of their image, the others a window of them.
    attention = by_operator["vision_encoder", "vllm.flash_attn_maxseqlen_wrapper"]
    whole = 4 * width * (n / 6) ** 2 * 6
    full = len(vision["fullatt_block_indexes"])
    assert full * whole < attention < full * whole * 1.5


def test_the_stages_of_a_page_share_the_time_of_its_prefill(pages: Run) -> None:
    section = stage_work.section(pages)
    assert section is not None
    work = {row["Stage"]: row for row in rows(table(section, "stage-work"))}
    assert list(work) == ["vision_encoder", "projector"]
    for row in work.values():
        assert row["MFU"] == pytest.approx(row["FLOPs"] / row["Time"] * 1e9 / DENSE["bf16"], 1e-3)
        assert row["MFU"] < row["MFU while busy"] < 1
    prefill = kind(pages, "prefill")
    assert prefill.encoder_ns == sum(row["Time"] for row in work.values())
    assert prefill.model_ns + prefill.encoder_ns == prefill.time_ns
    assert 0 < prefill.model_idle_ns < prefill.idle_ns
    # No kernel of the language model lies within: what is left is what its launches took.
    launches = pages.launches[pages.launches["stage"] == "prefill"]
    inside = launches["nvtx_path"].astype(str).str.contains("vision_encoder")
    left = launches[~inside]["duration_ns"].sum()
    assert prefill.model_ns - prefill.model_idle_ns == pytest.approx(left, rel=0.02)  # copies


def kind(run: Run, name: str) -> Kind:
    found = engine_stages(run).kind(name)
    assert found is not None
    return found


def engine_stages(run: Run) -> Stages:
    found = stages_of(run)
    assert found is not None
    return found


def test_a_trace_of_mooncake_came_as_it_is_recorded(recorded_run_of: Recorded) -> None:
    run = recorded_run_of("h100-running-server")
    (load,) = load_test(run).loads
    assert load.is_trace
    point = load.row
    assert (point["requests_of"], point["too_long"]) == ("mooncake.jsonl", 6)
    assert (point["requests"], point["failed_requests"]) == (19, 0)
    requests = run.requests[run.requests["case"] == point["case"]].sort_values("arrival_s")
    assert (requests["prompt_tokens"] + requests["output_tokens"]).max() <= 8192
    # In the trace requests come every 3 s, and half the time lies between them here.
    batches = (requests["arrival_s"] - requests["arrival_s"].min()).round(1).unique()
    assert batches.tolist() == pytest.approx([0, 1.5, 3.0, 4.5], abs=0.05)
    assert load.server["requests"] == 19
    assert load.server["generation_tokens"] == requests["output_tokens"].sum()


@pytest.mark.parametrize(
    ("capture", "dtype", "peak", "bits"),
    [
        ("h100-vllm-fp8", "fp8", DENSE["fp8"], 8),
        ("h100-vllm-awq", "fp16", DENSE["bf16"], 4 + (16 + 4) / 128),
    ],
)
def test_quantized_checkpoints_are_held_to_the_roof_they_multiply_at(
    recorded_run_of: Recorded, root: Path, capture: str, dtype: str, peak: float, bits: float
) -> None:
    run = recorded_run_of(capture)
    stages = engine_stages(run)
    assert stages.engine is not None
    assert stages.engine.dtype == dtype
    assert stages.engine.reason == ""
    assert stages.roofs.compute is not None
    assert stages.roofs.compute.value == pytest.approx(peak, rel=1e-3)
    config = json.loads((root / "targets/serving/configs/qwen2.5-7b/config.json").read_text())
    width, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_key_value_heads"] * (width // config["num_attention_heads"])
    layers = config["num_hidden_layers"] * (2 * width**2 + 2 * width * heads + 3 * width * inner)
    decode = kind(run, "decode")
    assert decode.work is not None
    read = decode.work.traffic.weights / decode.steps
    # Besides the layers: the head in 16 bits, biases, norms and the rows of the embedding.
    rest = 2 * config["vocab_size"] * width
    assert read == pytest.approx(layers * bits / 8 + rest, rel=0.002)
    prefill = kind(run, "prefill")
    assert 0.2 < prefill.flop_rate / peak < 1
