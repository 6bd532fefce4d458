"""The GPUs of a fleet: what was planted in recorded processes is found, and nothing else."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.parsers.build.load import load_run
from nsight_prof.reports.fleet.fleet import COLUMNS, Gpu, fleet
from nsight_prof.reports.fleet.section import html, markdown


@pytest.fixture(scope="module")
def run(recorded_folder: Callable[[str], Path]) -> Path:
    return recorded_folder("h200-roofline")


@pytest.fixture(scope="module")
def gpus(run: Path) -> list[Gpu]:
    """Nine processes of one H200 as if each were a GPU: what they differ by is the noise of one."""
    loaded = load_run(run)
    facts = loaded.bench.set_index("case_id")[["name", "operation", "level", "bytes"]]
    found = []
    for (repeat, process), rows in loaded.bench_runs.groupby(["repeat", "process"]):
        cases = rows.join(facts, on="case_id").assign(throttle_reasons="")
        found.append(Gpu(f"node/{repeat}-{process}", f"GPU-{repeat}{process}", "NVIDIA H200",
                         cases[list(COLUMNS)]))  # fmt: skip
    return found


def changed(gpu: Gpu, change: Callable[[pd.DataFrame], None]) -> Gpu:
    cases = gpu.cases.copy()
    change(cases)
    return Gpu(gpu.run, gpu.uuid, gpu.model, cases)


def slower(part: float, *levels: str) -> Callable[[pd.DataFrame], None]:
    def change(cases: pd.DataFrame) -> None:
        cases.loc[cases["level"].isin(levels), "median_s"] *= 1 + part

    return change


def lower_clock(reasons: str, temperature: float) -> Callable[[pd.DataFrame], None]:
    def change(cases: pd.DataFrame) -> None:
        slower(0.1, "tensor", "fp64", "fp32", "fp16", "l1", "l2", "shared")(cases)
        cases["clock_hz"] /= 1.1
        cases["throttle_reasons"] = reasons
        cases["temperature_c"] = temperature

    return change


def test_equal_gpus_have_no_outlier(gpus: list[Gpu]) -> None:
    assert len(gpus) == 9
    (model,) = fleet(gpus)
    assert (model.name, model.gpus, model.outliers) == ("NVIDIA H200", 9, ())
    assert model.cases > 200
    assert set(model.spread) == {"compute", "caches", "memory", "link"}


@pytest.mark.parametrize(
    ("change", "kind", "cause"),
    [
        (lower_clock("", 40.0), "compute", "clock"),
        (lower_clock("sw_thermal_slowdown", 91.0), "compute", "heat"),
        (lower_clock("sw_power_cap", 60.0), "compute", "power"),
        (slower(0.08, "dram"), "memory", "memory"),
        (slower(0.30, "host"), "link", "link"),
        (slower(0.10, "tensor", "fp64", "fp32", "fp16"), "compute", ""),
    ],
)
@pytest.mark.parametrize("count", [3, 9])
def test_a_planted_outlier_is_named_with_its_cause(
    gpus: list[Gpu], change: Callable[[pd.DataFrame], None], kind: str, cause: str, count: int
) -> None:
    chosen = [changed(gpus[0], change), *gpus[1:count]]
    (model,) = fleet(chosen)
    (found,) = model.outliers
    assert (found.uuid, found.run, found.kind, found.cause) == ("GPU-11", "node/1-1", kind, cause)
    expected = {"memory": 0.08, "link": 0.3}.get(kind, 0.1)
    assert found.slower == pytest.approx(expected, abs=0.02)
    if cause in ("clock", "heat", "power"):
        assert found.clock_lower == pytest.approx(1 - 1 / 1.1, abs=0.005)


def test_of_two_gpus_none_is_called_off(gpus: list[Gpu]) -> None:
    (model,) = fleet([changed(gpus[0], slower(0.3, "dram")), gpus[1]])
    assert model.outliers == ()
    assert model.spread["memory"] == pytest.approx(0.26, abs=0.05)
    assert np.isfinite(list(model.spread.values())).all()


def test_runs_of_a_folder_are_compared_by_their_gpus(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        copy = tmp_path / f"fleet/node-{number}/gpu-0"
        # One process on each: which of nine is off is asked above.
        shutil.copytree(
            root / "captures/h200-roofline",
            copy,
            ignore=shutil.ignore_patterns("*-counters", "result-[23]-*", "result-1-[23]*"),
        )
        for name in ("manifest.json", "roofs.json"):
            data = json.loads((copy / name).read_text())
            for gpu in data.get("gpus", [data.get("gpu")]):
                gpu["uuid"] = f"GPU-{number}"
            if "steps" in data:
                data["steps"] = data["steps"][:1]
            (copy / name).write_text(json.dumps(data))
    assert main(["fleet", str(tmp_path / "fleet"), "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)
    assert (model["gpus"], model["outliers"]) == (3, [])
    twice = [str(tmp_path / "fleet/node-0"), str(tmp_path / "fleet/node-0/gpu-0")]
    assert main(["fleet", *twice]) == 2
    assert "are of the same GPU (GPU-0)" in capsys.readouterr().err
    assert main(["fleet", str(tmp_path)]) == 0
    assert "None of 3 GPUs is slower than the median by 2.0 %" in capsys.readouterr().out


def test_the_page_names_the_outlier_its_cause_and_what_to_check(
    gpus: list[Gpu], in_browser: Callable[..., Any]
) -> None:
    models = fleet([changed(gpus[0], lower_clock("sw_thermal_slowdown", 91.0)), *gpus[1:]])
    page = markdown(models)
    assert "1 of 9 GPUs is slower than the others" in page
    assert "slower in arithmetic; cause: heat, which held its SM clock down" in page
    assert "nvidia-smi -q -d TEMPERATURE" in page
    assert "highest temperature 91 °C" in page
    assert "fleet-nvidia-h200.svg" not in page  # nothing writes pictures beside it
    count = "return ['tbody tr', 'svg'].map((each) => document.querySelectorAll(each).length)"
    assert in_browser(html(models), count) == [9, 1]


@pytest.mark.every_run
def test_boards_of_one_host_are_told_apart_by_what_their_engine_saw(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(root / "captures/noise-floor", tmp_path / "boards")
    assert main(["fleet", str(tmp_path / "boards"), "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)
    assert [board["uuid"][:12] for board in model["boards"]] == ["GPU-807c0827", "GPU-2b3c8874"]
    assert model["spread"]["engine"] < 0.005
    assert {board["clock_lower"] for board in model["boards"]} == {0.0}
    # CUDA's own order of devices need not be that of the manifest.
    command = tmp_path / "boards/board-0/steps/1-bench/command.json"
    command.write_text(command.read_text().replace("PCI_BUS_ID", "FASTEST_FIRST"))
    assert main(["fleet", str(tmp_path / "boards/board-0")]) == 2
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in capsys.readouterr().err


@pytest.mark.every_run
def test_four_boards_of_one_host_are_alike(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recorded by `prof run roofline --on ray --every gpu`: of no kind of case one is apart."""
    shutil.copytree(root / "tests/fixtures/fleet", tmp_path / "fleet")
    assert main(["fleet", str(tmp_path / "fleet"), "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)
    assert (model["gpus"], model["cases"], model["outliers"]) == (4, 246, [])
    assert set(model["spread"]) == {"compute", "caches", "memory", "link"}
    assert all(0 < spread < 0.01 for spread in model["spread"].values())
