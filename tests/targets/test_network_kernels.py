"""The target network_kernels: its plan for a GPU, every family on a CPU, and lists of networks."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from nsight_prof.targets.harness import Case  # noqa: E402
from nsight_prof.targets.network_kernels import networks, operations  # noqa: E402
from nsight_prof.targets.network_kernels.calls import list_calls  # noqa: E402
from nsight_prof.targets.network_kernels.plan import FAMILIES, RESNET  # noqa: E402
from nsight_prof.targets.network_kernels.run import cases, main  # noqa: E402

SCHEMA = Path(__file__).resolve().parents[2] / "parsers" / "bench.schema.json"
ON_CPU = [family for family in FAMILIES if family not in ("fused", "side-by-side")]
"""torch.compile needs a compiler and seconds, two streams need a GPU."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads of tiny products wait for each other longer than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def planned(**given: Any) -> list[Case]:
    usual = {"device": "cuda", "families": None, "variants": None, "batches": None}
    return list(cases(Namespace(**usual | given)))


def calls_of(name: str) -> list[dict[str, Any]]:
    known = {**networks.NETWORKS, **networks.TINY_NETWORKS}
    with torch.device("meta"):
        return list_calls(*known[name].made(1))


def test_the_sweep_covers_families_layouts_types_and_batches() -> None:
    made = planned()
    assert len({case.name for case in made}) == len(made)
    assert {case.params["family"] for case in made} == set(FAMILIES)
    convolutions = [case for case in made if case.params["family"] == "conv"]
    layouts = {(case.params["layout"], case.dtype) for case in convolutions}
    assert layouts == {
        ("channels-last", "bf16"), ("channels-first", "bf16"), ("channels-last", "tf32")
    }  # fmt: skip
    usual = [c for c in convolutions if (c.params["layout"], c.dtype) == ("channels-last", "bf16")]
    assert {case.params["rows"] for case in usual} == {1, 8, 32, 128}
    assert {case.params["kernel"] for case in usual} == {1, 3, 7}
    # What predicts a network must be there on used buffers and on others.
    assert {case.modes for case in usual if case.params["variant"] == "graph"} == {("cold", "hot")}
    assert {case.params["rows"] for case in planned(families=["conv"], batches=[2])} == {2}


def test_every_family_runs_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "result.jsonl"
    words = ["--device", "cpu", "--families", *ON_CPU, "--case-time", "0.001", "--out", str(out)]
    assert main([*words, "--min-samples", "1", "--max-noise", "9"]) == 0
    records = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    schema = json.loads(SCHEMA.read_text("utf-8"))
    for record in records:
        jsonschema.validate(record, schema)
    measured = [record for record in records if record["record"] == "case"]
    assert {record["params"]["family"] for record in measured} == set(ON_CPU)
    failed = {(r["case"], r["reason"]) for r in measured if r["status"] != "ok"}
    assert not failed


def test_two_kernels_at_once_are_refused_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "result.jsonl"
    assert main(["--device", "cpu", "--families", "side-by-side", "--out", str(out)]) == 0
    records = [json.loads(line) for line in out.read_text("utf-8").splitlines()][1:]
    assert {record["status"] for record in records} == {"unsupported"}
    assert {record["params"]["op"] for record in records} == {"alone", "in-turn", "together"}


@pytest.mark.parametrize(
    ("operation", "flops", "activations", "weights"),
    [
        # 2 images of 4 x 8 x 8, 6 filters of 4 x 3 x 3, stride 2: 6 x 4 x 4 outputs an image.
        (
            operations.conv2d((2, 4, 8, 8), (6, 4, 3, 3), (4, 4), 2, 2, "channels-last"),
            2 * 2 * 96 * 36.0, (512 + 192) * 2.0, 216 * 2.0,
        ),
        (
            operations.conv2d((1, 4, 8, 8), (4, 1, 3, 3), (8, 8), 1, 2, "channels-last"),
            2 * 256 * 9.0, 512 * 2.0, 36 * 2.0,
        ),
        # Of 1x1 kernels with stride 2, 16 of 64 pixels are seen.
        (
            operations.conv2d((1, 4, 8, 8), (6, 4, 1, 1), (4, 4), 2, 2, "channels-last"),
            2 * 96 * 4.0, (4 * 16 + 96) * 2.0, 24 * 2.0,
        ),
        (operations.linear(3, 5, 7, 2), 210.0, (21 + 15) * 2.0, 35 * 2.0),
        # Two layers of 3 steps: 4 gates x 5 x (4 + 5) and 4 x 5 x 10 multiply-adds a sequence.
        (
            operations.lstm(2, 3, 4, 5, 2, 2), 2 * 2 * 3 * (180 + 200.0),
            (3 * 2 * 9 + 40 + 3 * 2 * 10 + 40) * 2.0, (180 + 40 + 200 + 40) * 2.0,
        ),
        (operations.layer_norm(2, 8, 2), 112.0, 64.0, 32.0),
        (operations.batch_norm(2, 3, 4, 2, "channels-last"), 48.0, 96.0, 24.0),
        (operations.group_norm(2, 4, 4, 2, 2, ""), 224.0, 128.0, 16.0),
        (operations.pool2d("max-pool2d", 1, 2, 16, 4, 9, 2, ""), 72.0, 80.0, 0.0),
        (operations.elementwise("add", 10, 2, 2), 10.0, 60.0, 0.0),
        (operations.softmax(2, 8, 2), 80.0, 64.0, 0.0),
    ],
)  # fmt: skip
def test_work_by_hand(
    operation: operations.Operation, flops: float, activations: float, weights: float
) -> None:
    assert operation.flops == flops
    assert operation.activation_bytes == activations
    assert operation.weight_bytes == weights


def test_depthwise_is_an_operation_of_its_own() -> None:
    of = operations.conv2d((1, 4, 8, 8), (4, 1, 3, 3), (8, 8), 1, 2, "channels-last")
    assert of.op == "depthwise-conv2d"
    assert of.sizes["groups"] == 4


@pytest.mark.parametrize(
    ("name", "parameters"),
    # torchvision's documentation of resnet50 and vit_b_16.
    [("resnet-50", 25_557_032), ("vit-b-16", 86_567_656)],
)
def test_networks_have_the_parameters_of_torchvisions(name: str, parameters: int) -> None:
    with torch.device("meta"):
        module, _ = networks.NETWORKS[name].made(1)
    assert sum(p.numel() for p in module.parameters()) == parameters


def test_the_list_of_a_resnet_is_its_layers() -> None:
    calls = calls_of("resnet-50")
    counts = Counter(call["op"] for call in calls for _ in range(call["calls"]))
    assert counts == {
        "conv2d": 53, "batch-norm": 53, "relu": 49, "add": 16, "max-pool2d": 1, "avg-pool2d": 1,
        "linear": 1,
    }  # fmt: skip
    assert {call["layout"] for call in calls if call["op"] == "conv2d"} == {"channels-last"}
    swept = {tuple(shape) for shape in RESNET}
    listed = {
        tuple(call["sizes"][key] for key in ("channels", "filters", "size", "kernel", "stride"))
        for call in calls if call["op"] == "conv2d"
    }  # fmt: skip
    assert listed == swept


@pytest.mark.parametrize("name", ["resnet-50", "resnet-50-nchw", "vit-b-16", "lstm-large"])
def test_products_of_a_list_have_the_flops_that_torch_counts(name: str) -> None:
    with torch.device("meta"), torch.inference_mode():
        module, inputs = networks.NETWORKS[name].made(1)
        with FlopCounterMode(display=False) as counter:
            module(*inputs)
    multiplied = ("conv2d", "linear", "attention", "lstm")
    listed = [call for call in calls_of(name) if call["op"] in multiplied]
    assert sum(call["flops"] * call["calls"] for call in listed) == counter.get_total_flops()


def test_a_layer_that_is_not_known_is_listed_without_work() -> None:
    with torch.device("meta"):
        calls = list_calls(torch.nn.Softplus(), (torch.randn(4),))
    assert [(call["op"], call["flops"]) for call in calls] == [("softplus", 0.0)]


def test_repeated_operations_are_one_line() -> None:
    module = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU())
    (call,) = list_calls(module, (torch.randn(4),))
    assert (call["op"], call["calls"], call["rows"]) == ("relu", 2, 4)
