"""A benchmark run from its raw records to all of its tables."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.build.run_tables import build_tables
from nsight_prof.parsers.roofs.file import read_roofs
from nsight_prof.parsers.run.directory import (
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    write_manifest,
)
from nsight_prof.parsers.run.run import Run

GPU = {"name": "NVIDIA H200", "uuid": "GPU-1", "sm_count": 132, "max_sm_clock_hz": 1.98e9}
SOFTWARE = {"driver": "580.1"}
READ, GEMM, NORM = "dram/read/u4", "tensor/bf16/8192", "norm/4096"
METRICS = {
    "gpu__time_duration.sum": "ns",
    "dram__bytes_read.sum": "byte",
    "dram__bytes_write.sum": "byte",
    "device__attribute_multiprocessor_count": "",
}


def conditions(**changes: Any) -> dict[str, Any]:
    record = {"record": "conditions", "schema": 1, "target": "roofline", "process": 1, "repeat": 1}
    record |= {"time": "2026-11-21T21:00:00Z", "device": "cuda", "gpu": GPU, "software": SOFTWARE}
    return record | {"argv": ["/secret/run.py"]} | changes


def case(name: str, seconds: float, **changes: Any) -> dict[str, Any]:
    samples = [seconds * (1 + i / 1e4) for i in range(-5, 6)]
    record = {"record": "case", "schema": 1, "case": name, "mode": "cold", "data": "normal"}
    record |= {"process": 1, "repeat": 1, "status": "ok", "time": {"samples_s": samples}}
    return record | {"clock": {"sm_hz_median": 1.98e9}} | changes


def records(process: int, **of_conditions: Any) -> list[dict[str, Any]]:
    dram = {"level_or_pipe": "dram", "kind": "read", "dtype": ""}
    tensor = {"level_or_pipe": "tensor", "kind": "burst", "dtype": "bf16"}
    made = [
        conditions(**of_conditions),
        case(READ, 1e-3, roof=dram, level="dram", work={"bytes": 4.6e9}),
        case(GEMM, 1e-3, roof=tensor, level="tensor", dtype="bf16", work={"flops": 0.8e12}),
        case(NORM, 1e-3, level="dram", work={"bytes": 2.3e9, "flops": 1e6}),
    ]
    return [record | {"process": process} for record in made]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    steps = [
        StepRecord("bench", "a", StepState.DONE, "steps/1-bench"),
        StepRecord("counters", "b", StepState.DONE, "steps/2-counters"),
    ]
    for step in steps:
        (tmp_path / step.directory).mkdir(parents=True)
    manifest = Manifest("roofline-1", "2026-11-21", {"name": "roofline"}, steps=steps)
    manifest.gpus = [{"name": "NVIDIA H200", "uuid": "GPU-1", "power_limit_w": 700.0}]
    manifest.software = {"driver": "580.1"}
    write_manifest(RunDir(tmp_path), manifest)
    for process in (1, 2, 3):
        write_lines(tmp_path / f"steps/1-bench/result-1-{process}.jsonl", records(process))
    return RunDir(tmp_path)


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_counters(run: RunDir, moved: dict[str, float]) -> None:
    """Write what ncu prints of one launch of each case: it moved so many bytes."""
    nvtx = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    head = ["ID", "Process ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"]
    head += ["Device", "CC", "Section Name", f"1 {nvtx}", "Metric Name", "Metric Unit"]
    rows = [",".join(f'"{name}"' for name in [*head, "Metric Value"])]
    for place, (name, amount) in enumerate(moved.items()):
        path = f"<default domain>:case:{name}|cold|normal:none:none:none:none:none:none"
        cells = [str(place), "7", "stream(float *)", "1", "7", "(256, 1, 1)", "(99, 1, 1)", "0"]
        for metric, value in zip(METRICS, (1e6, amount, 0.0, 132.0), strict=True):
            row = [*cells, "9.0", "", f'""{path}""', metric, METRICS[metric], f"{value:.0f}"]
            rows.append(",".join(f'"{cell}"' for cell in row))
    (run.path / "steps/2-counters/counters.csv").write_text("\n".join(rows) + "\n")


def made(run: RunDir) -> Run:
    build_tables(run)
    return load_run(run.path)


def reasons(run: Run) -> str:
    return " | ".join(run.gaps["reason"])


def test_cases_of_three_processes_become_one_row_each(run: RunDir) -> None:
    found = made(run)
    assert found.bench["name"].tolist() == [READ, GEMM, NORM]
    assert set(found.bench["processes"]) == {3}
    assert set(found.bench["n"]) == {33}
    assert len(found.bench_runs) == 9
    assert found.bench["bytes_per_s"].tolist()[0] == pytest.approx(4.6e12)


def test_recorded_roofs_change_with_the_measurement_alone(run: RunDir) -> None:
    made(run)
    path = run.path / "roofs.json"
    recorded = json.loads(path.read_text())
    recorded["roofs"][0]["value"] *= 0.9  # as an older version of prof worked it out
    of_older_version = json.dumps(recorded)
    path.write_text(of_older_version)
    made(run)
    assert path.read_text() == of_older_version
    write_counters(run, {READ: 1.0})  # counters of another step came after it
    made(run)
    assert path.read_text() != of_older_version


def test_the_run_measures_its_own_roofs_and_keeps_them(run: RunDir) -> None:
    found = made(run)
    assert found.measured_roofs["kind"].tolist() == ["read", "burst"]
    assert found.roofs[found.roofs["source"].eq("measured")]["value"].tolist() == [
        pytest.approx(4.6e12),
        pytest.approx(800e12),
    ]
    file = read_roofs(run.path / "roofs.json")
    assert file.run_id == "roofline-1"
    assert file.measured == "2026-11-21T21:00:00Z"
    assert (file.gpu["uuid"], file.gpu["driver"]) == ("GPU-1", "580.1")
    assert (file.gpu["sm_count"], file.gpu["power_limit_w"]) == (132, 700.0)
    assert "secret" not in (run.path / "roofs.json").read_text()
    (ridge,) = found.ridge_points[found.ridge_points["source"].eq("measured")].to_dict("records")
    assert ridge["intensity"] == pytest.approx(800e12 / 4.6e12)


def test_each_case_is_set_against_the_roofs(run: RunDir) -> None:
    bench = made(run).bench.set_index("name")
    assert bench["roof_used"].to_dict() == {READ: "dram", GEMM: "tensor bf16", NORM: "dram"}
    assert bench["roof_fraction"].tolist() == [pytest.approx(f) for f in (1.0, 1.0, 0.5)]
    assert set(bench["roof_source"]) == {"this run"}


def test_counters_confirm_or_contradict_the_roofs(run: RunDir) -> None:
    write_counters(run, {READ: 4.6e9, GEMM: 1e6, NORM: 1e6})
    found = made(run)
    assert found.bench.set_index("name").at[READ, "dram_bytes"] == 4.6e9
    assert found.measured_roofs.set_index("kind").at["read", "accepted"]
    assert "DRAM moved 1.000 times" in found.measured_roofs["reason"].iloc[0]
    write_counters(run, {READ: 1e9})
    found = made(run)
    assert not found.measured_roofs.set_index("kind").at["read", "accepted"]
    assert found.roofs[found.roofs["source"].eq("measured")]["level_or_pipe"].tolist() == ["tensor"]


def test_without_counters_the_roofs_are_not_confirmed(run: RunDir) -> None:
    found = made(run)
    assert found.measured_roofs["accepted"].isna().all()
    assert "no counters" in reasons(found)


def test_a_killed_process_leaves_its_whole_lines_and_a_gap(run: RunDir) -> None:
    path = run.path / "steps/1-bench/result-1-3.jsonl"
    path.write_text(path.read_text()[:-300])
    found = made(run)
    assert found.bench.set_index("name")["processes"].to_dict() == {READ: 3, GEMM: 3, NORM: 2}
    assert "is cut: the process was killed" in reasons(found)


def test_a_file_of_a_newer_prof_is_a_gap(run: RunDir) -> None:
    write_lines(run.path / "steps/1-bench/result-1-3.jsonl", [conditions(schema=9)])
    found = made(run)
    assert set(found.bench["processes"]) == {2}
    assert "schema 9" in reasons(found)


def test_other_drivers_in_one_run_are_a_gap(run: RunDir) -> None:
    path = run.path / "steps/1-bench/result-1-3.jsonl"
    write_lines(path, records(3, software={"driver": "590.2"}))
    assert "driver is not the same in all processes" in reasons(made(run))


def test_a_run_on_the_cpu_gives_no_roofs(run: RunDir) -> None:
    for process in (1, 2, 3):
        path = run.path / f"steps/1-bench/result-1-{process}.jsonl"
        write_lines(path, records(process, device="cpu", gpu=None))
    found = made(run)
    assert len(found.bench) == 3
    assert found.measured_roofs.empty
    assert found.roofs.empty
    assert not (run.path / "roofs.json").exists()
    assert "on a CPU" in reasons(found)


def test_a_run_without_any_record_says_so(run: RunDir) -> None:
    for path in (run.path / "steps/1-bench").iterdir():
        path.unlink()
    found = made(run)
    assert found.bench.empty
    assert "no case was measured" in reasons(found)


@pytest.fixture
def ordinary(run: RunDir, tmp_path: Path) -> RunDir:
    """Another run that has the roofs of `run`, and cases that are no candidates."""
    build_tables(run)
    for process in (1, 2, 3):
        lines = [record | {"roof": None} for record in records(process)]
        write_lines(tmp_path / f"steps/1-bench/result-1-{process}.jsonl", lines)
    return run


def test_another_run_uses_the_roofs_that_it_was_given(ordinary: RunDir) -> None:
    found = made(ordinary)
    assert found.bench.set_index("name").at[NORM, "roof_fraction"] == pytest.approx(0.5)
    assert "run roofline-1, measured 2026-11-21" in found.bench["roof_source"].iloc[0]
    assert len(found.measured_roofs) == 2
    assert "by run roofline-1" in found.roofs["detail"].iloc[0]


def test_roofs_of_another_gpu_are_used_with_a_caveat(ordinary: RunDir) -> None:
    manifest = load_run(ordinary.path).manifest
    manifest.gpus[0]["uuid"] = "GPU-2"
    write_manifest(ordinary, manifest)
    found = made(ordinary)
    assert "another NVIDIA H200 (GPU-1)" in found.bench["roof_source"].iloc[0]
    assert "another NVIDIA H200 (GPU-1)" in found.roofs["detail"].iloc[0]


def test_roofs_under_another_driver_are_not_used(ordinary: RunDir) -> None:
    manifest = load_run(ordinary.path).manifest
    manifest.software["driver"] = "590.2"
    write_manifest(ordinary, manifest)
    found = made(ordinary)
    assert found.bench["roof_fraction"].isna().all()
    assert found.measured_roofs.empty
    assert "those of run roofline-1 do not hold here" in reasons(found)


def test_a_damaged_file_of_roofs_is_a_gap(ordinary: RunDir) -> None:
    (ordinary.path / "roofs.json").write_text("{")
    assert "not a file of measured roofs" in reasons(made(ordinary))


def test_repeats_tell_the_repeatability(run: RunDir) -> None:
    for repeat, factor in ((2, 1.01), (3, 1.02)):
        lines = records(1)
        for line in lines[1:]:
            line["time"] = {"samples_s": [s * factor for s in line["time"]["samples_s"]]}
        lines = [line | {"repeat": repeat} for line in lines]
        write_lines(run.path / f"steps/1-bench/result-{repeat}-1.jsonl", lines)
    roofs = made(run).measured_roofs
    assert np.allclose(roofs["repeatability"].to_numpy(), 0.02 / 1.01)
    assert set(roofs["repeats"]) == {3}


def test_tables_of_a_run_without_measured_cases_are_empty(tmp_path: Path) -> None:
    write_manifest(RunDir(tmp_path), Manifest("r", "2026-11-21", {"name": "r"}))
    found = made(RunDir(tmp_path))
    for table in ("bench", "bench_runs", "measured_roofs", "ridge_points"):
        assert tables.read(found.directory.tables, table).empty
    assert not math.isfinite(found.bench["median_s"].sum(min_count=1))
