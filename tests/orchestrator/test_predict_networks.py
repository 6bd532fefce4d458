"""`prof predict` of whole networks on a recorded run of their operations."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.predict import networks
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.cells import records

pytestmark = pytest.mark.usefixtures("no_pictures")
SWEEP, TRUTH = "h100-network-kernels", "prediction/networks-h100"

Copied = Callable[[str], Path]


@pytest.fixture(scope="module")
def copied(
    recorded_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Copied]:
    """A copy of a recorded run with its tables, whose models are fitted once: none changes it."""
    folder = tmp_path_factory.mktemp("captures")

    def copy(name: str) -> Path:
        if not (folder / name).exists():
            shutil.copytree(recorded_folder(name), folder / name)
        return folder / name

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "Measured", cache(networks.Measured))
        yield copy


def test_a_network_is_predicted_at_its_batches(copied: Copied, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["predict", "resnet-50", "--on", str(copied(SWEEP)), "--batch", "1,16,64"]
    assert main([*words, "--out", str(out)]) == 0
    run = load_run(out)
    points = {(row["batch"], row["launch"]): row for row in records(run.predicted_networks)}
    assert {batch for batch, _ in points} == {1, 16, 64}
    eager, graph = points[1, "eager"], points[1, "graph"]
    # 53 convolutions and norms, 49 + 16 activations and sums, 2 pools, the head.
    assert graph["operations"] == 53 + 53 + 49 + 16 + 2 + 1
    assert eager["bound_by"] == "host"
    assert eager["seconds"] > graph["seconds"] > 0
    assert points[64, "graph"]["per_second"] > points[1, "graph"]["per_second"]
    assert graph["seconds_low"] < graph["seconds"] < graph["seconds_high"]
    of_graph = run.predicted_operators[run.predicted_operators["case"].eq(graph["case"])]
    assert of_graph["seconds"].sum() == pytest.approx(graph["gpu_s"])
    assert of_graph["share"].sum() == pytest.approx(1)
    assert of_graph["calls"].sum() == graph["operations"]
    report = (out / "report" / "report.md").read_text("utf-8")
    assert "a pass of resnet-50 at batch 1 takes" in report


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["resnet-50"], "no run was given"),
        (["resnet-50", "--on", "SWEEP", "--prompt", "512"], "leave out --prompt"),
        (["resnet-50", "--on", "STAIRCASE"], "no measured operations"),
        (["unknown.json", "--on", "SWEEP"], "softplus fp32"),
        (["broken.json", "--on", "SWEEP"], "holds no list of operations"),
    ],
)
def test_what_cannot_be_predicted_is_refused(
    copied: Copied, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    call = {"op": "softplus", "rows": 1, "sizes": {}, "flops": 0.0, "activation_bytes": 1.0,
            "weight_bytes": 0.0, "layout": "", "dtype": "fp32", "calls": 1}  # fmt: skip
    files = {"unknown.json": {"model": "Unknown", "calls": [call]}, "broken.json": {"calls": 3}}
    for name, data in files.items():
        (tmp_path / name).write_text(json.dumps(data), "utf-8")
    places = {"SWEEP": SWEEP, "STAIRCASE": "h200-gemm-staircase"}
    given = [
        str(copied(places[w])) if w in places else str(tmp_path / w) if w in files else w
        for w in words
    ]
    assert main(["predict", *given, "--out", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err


def test_predictions_are_held_against_networks_measured_whole(
    copied: Copied, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", "--validate", str(copied(TRUTH)), "--on", str(copied(SWEEP))]
    out = tmp_path / "run"
    assert main([*words, "--fail-on", "network_mape>0.01%", "--out", str(out)]) == 1
    assert "network has mape" in capsys.readouterr().err
    errors = load_run(out).prediction_errors
    assert set(errors["scope"]) == {"network"}
    assert set(errors["sample"]) == {"held out"}
    assert {"resnet-50", "vit-b-16", "lstm-medium"} <= set(errors["group"])
    assert (errors["predicted"] / errors["measured"] - 1).to_numpy() == pytest.approx(
        errors["error"].to_numpy()
    )
    # Sizes that were measured at other batches (T2) add up to networks in CUDA graphs.
    graphs = errors[errors["name"].eq("graph") & errors["tier"].eq("T2")]
    assert len(graphs) == 16
    assert graphs["error"].abs().max() < 0.1


def test_a_rule_about_networks_needs_networks(
    copied: Copied, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", "--validate", str(copied(SWEEP)), "--on", str(copied(SWEEP))]
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    assert "served a model" in capsys.readouterr().err
