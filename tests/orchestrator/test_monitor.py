"""Sampling of GPUs beside steps, alone, and as a gate: by a fake NVML and a fake nvidia-smi."""

import csv
import json
import threading
import time
import types
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.imports.importing import import_files
from nsight_prof.orchestrator.recipe.read import recipe_from_dict
from nsight_prof.orchestrator.recipe.sections import WaitUntil
from nsight_prof.orchestrator.run import cooling, prepare
from nsight_prof.orchestrator.run.cooling import wait_until_cool
from nsight_prof.orchestrator.system import gpm, monitor
from nsight_prof.orchestrator.system.monitor import (
    UNITS_BY_SMI,
    open_source,
    sampled,
    samples,
)
from nsight_prof.parsers.errors import RecipeError, ToolMissing
from nsight_prof.parsers.nsys.sqlite.identity import trace_start
from nsight_prof.parsers.nsys.trace import open_trace

SMI = """#!/bin/sh
case "$1" in *throttle*) exit 2;; esac
echo '0, 97, 41, 1024, 512.30, 1845, 3201, 63, 0x0000000000000024'
echo '1, [N/A], [N/A], 0, [N/A], 345, 3201, 31, 0x0000000000000001'
"""


def nvml(temperatures: list[int]) -> Any:
    """A pynvml of one GPU, which cools down and does not tell the traffic of PCIe."""

    def refuse(*_: Any) -> None:
        raise RuntimeError("Not Supported")

    return types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=lambda gpu: types.SimpleNamespace(gpu=97, memory=41),
        nvmlMemory_v2=2,
        nvmlDeviceGetMemoryInfo=lambda gpu, version=1: types.SimpleNamespace(
            used=(1 << 30) + (503316480 if version == 1 else 0)  # what the driver keeps
        ),
        nvmlDeviceGetPowerUsage=lambda gpu: 512300,
        nvmlDeviceGetClockInfo=lambda gpu, kind: {1: 1845, 2: 3201}[kind],
        nvmlDeviceGetTemperature=lambda gpu, kind: (
            temperatures.pop(0) if len(temperatures) > 1 else temperatures[0]
        ),
        nvmlDeviceGetCurrentClocksEventReasons=lambda gpu: 0x24,
        nvmlDeviceGetPcieThroughput=refuse,
        nvmlGpmQueryDeviceSupport=lambda gpu: types.SimpleNamespace(isSupportedDevice=0),
    )


def hopper(values: list[float]) -> Any:
    """The same of a GPU with GPM: a value is that of its interval and the number of the metric."""
    taken: list[int] = []

    def metrics_get(asked: Any) -> Any:
        for metric in asked.metrics[: asked.numMetrics]:
            metric.value = values[asked.sample1.at] + metric.metricId
            metric.nvmlReturn = 3 if metric.metricId == 5 else 0
        return asked

    def sample_get(gpu: Any, sample: Any) -> None:
        sample.at = len(taken)
        taken.append(0)

    blank = [types.SimpleNamespace(metricId=0) for _ in range(8)]
    return types.SimpleNamespace(
        **vars(nvml([63]))
        | {
            "nvmlGpmQueryDeviceSupport": lambda gpu: types.SimpleNamespace(isSupportedDevice=1),
            "nvmlGpmSampleAlloc": lambda: types.SimpleNamespace(at=None),
            "nvmlGpmSampleGet": sample_get,
            "nvmlGpmMetricsGet": metrics_get,
            "c_nvmlGpmMetricsGet_t": lambda: types.SimpleNamespace(metrics=blank),
            "NVML_GPM_METRICS_GET_VERSION": 1,
        }
    )


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi on PATH, and no NVML."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_a_sample_is_in_base_units_and_leaves_out_what_is_not_told() -> None:
    (found,) = open_source(nvml([63]))()
    assert found.pop("utc_ns") > 1.7e18
    assert found == {
        "device": 0, "gpu_util_pct": 97.0, "memory_util_pct": 41.0,
        "memory_used_bytes": 1073741824.0, "power_w": 512.3, "sm_clock_hz": 1.845e9,
        "memory_clock_hz": 3.201e9, "temperature_c": 63.0,
        "throttle": "sw_power_cap, sw_thermal_slowdown",
        "pcie_rx_bytes_per_s": None, "pcie_tx_bytes_per_s": None,
        "sm_active_pct": None, "sm_occupancy_pct": None, "tensor_active_pct": None,
        "dram_active_pct": None, "gpm_problem": gpm.OLD_GPU,
    }  # fmt: skip


def test_the_units_are_sampled_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    source, found = open_source(hopper([10.0, 50.0])), []
    for now[0] in (0.0, 0.05, 0.2, 0.25, 0.4):
        (row,) = source()
        found.append([row[name] for name in gpm.METRICS])
        assert row["gpm_problem"] == ""
    nothing = [None] * 4
    # Too close to the sample before: nothing. NVML refuses one of the metrics: it alone is unknown.
    assert found == [nothing, nothing, [12.0, 13.0, None, 20.0], nothing, [52.0, 53.0, None, 60.0]]
    (row,) = source(units=False)
    assert (row["sm_active_pct"], row["gpm_problem"]) == (None, "not asked while ncu counts")


def test_a_gpu_whose_units_cannot_be_asked_says_why() -> None:
    broken = hopper([])
    (row,) = open_source(types.SimpleNamespace(**vars(broken) | {"nvmlGpmSampleGet": None}))()
    assert row["power_w"] == 512.3
    assert row["gpm_problem"].startswith("NVML's GPM cannot be asked: ")


def test_only_the_gpus_of_the_program_are_asked() -> None:
    asked, one = [], hopper([1.0] * 9)

    def support(gpu: Any) -> Any:
        asked.append(gpu)
        return types.SimpleNamespace(isSupportedDevice=0)

    host = types.SimpleNamespace(
        **vars(one)
        | {
            "nvmlDeviceGetCount": lambda: 4,
            "nvmlDeviceGetHandleByPciBusId": lambda bus: [b"0000:1B:00.0", b"0000:AA:00.0"].index(
                bus
            ) + 2,
            "nvmlDeviceGetIndex": lambda gpu: gpu,
            "nvmlGpmQueryDeviceSupport": support,
        }
    )  # fmt: skip
    source = open_source(host, ["0000:AA:00.0", "0000:AA:00.0"])  # two MIG instances of one GPU
    assert [row["device"] for row in source()] == [3]
    assert asked == [3]
    assert [row["device"] for row in open_source(host)()] == [0, 1, 2, 3]


@pytest.mark.parametrize("shown", [None, [], ["0000:2B:00.0"]])
def test_a_run_samples_what_cuda_shows_its_program(
    shown: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = types.SimpleNamespace(variables={"CUDA_VISIBLE_DEVICES": "1"})
    asked: list[Any] = []

    def visible(where: Any) -> list[str] | None:
        asked.append(where)
        return shown

    monkeypatch.setattr(prepare, "visible_gpus", visible)
    monkeypatch.setattr(prepare, "open_source", lambda bus_ids: ("samples of", bus_ids))
    machine: Any = types.SimpleNamespace(gpus=[{}], environment=environment)
    source: Any = prepare._source(machine)
    assert source == (None if shown == [] else ("samples of", shown))
    assert asked == [environment.variables]
    machine.gpus = []
    assert prepare._source(machine) is None


def test_a_run_goes_on_where_no_gpu_can_be_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = types.SimpleNamespace(variables={})
    monkeypatch.setattr(prepare, "visible_gpus", lambda where: None)
    monkeypatch.setattr(monitor, "_by_smi", lambda reasons: [])
    machine: Any = types.SimpleNamespace(gpus=[{}], environment=environment)
    assert prepare._source(machine) is None


def test_nvidia_smi_stands_in_with_the_same_numbers(smi: None) -> None:
    first, second = open_source(types.SimpleNamespace())()
    (expected,) = open_source(nvml([63]))()
    assert {**first, "utc_ns": 0} == {**expected, "utc_ns": 0, "gpm_problem": UNITS_BY_SMI}
    assert second["power_w"] is None
    assert second["throttle"] == "gpu_idle"


def test_without_both_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolMissing, match="no GPU can be sampled"):
        open_source(types.SimpleNamespace())


def test_samples_lie_beside_what_ran(tmp_path: Path) -> None:
    source, seen = open_source(nvml([63])), threading.Event()

    def watched(units: bool = True) -> list[dict[str, Any]]:
        seen.set()
        return source(units)

    with sampled(tmp_path / "nvml.csv", watched):
        assert seen.wait(10)
    with (tmp_path / "nvml.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert rows[0]["power_w"] == "512.3"
    assert rows[0]["pcie_rx_bytes_per_s"] == ""
    with sampled(tmp_path / "none.csv", None):
        pass
    assert not (tmp_path / "none.csv").exists()


def test_a_duration_ends_it() -> None:
    found = list(samples(open_source(nvml([63])), 0.02, threading.Event(), 0.05))
    assert 1 <= len(found) <= 3


def test_the_command_prints_and_writes(
    smi: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["monitor", "--duration", "0.01", "--interval", "0.02"]
    assert main([*short, "--csv", str(tmp_path / "gpu.csv")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("GPU")
    assert printed[1].split()[:3] == ["0", "512.3", "1845"]
    assert "sw_power_cap" in printed[1]
    assert main([*short, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["temperature_c"] == 63.0
    lines = (tmp_path / "gpu.csv").read_text().splitlines()
    assert lines[0] == ",".join(monitor.FIELDS)
    assert len(lines) == 3


def test_the_gate_opens_when_the_gpu_is_cool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooling, "POLL_S", 0.0)
    told: list[str] = []
    gate = WaitUntil.model_validate({"below": "60C"})
    assert wait_until_cool(gate, open_source(nvml([64, 61, 59])), told.append) == ""
    assert told == [
        f"a GPU is at {degrees} °C, waiting until it is below 60 °C" for degrees in (64, 61)
    ]
    assert wait_until_cool(None, None, told.append) == ""


def test_a_gate_that_was_not_met_says_why() -> None:
    gate = WaitUntil.model_validate({"below": 60, "timeout": "0.01s"})
    reason = wait_until_cool(gate, open_source(nvml([64])), lambda _: None)
    assert reason.startswith("wait_until (below 60 °C) was not met: a GPU was at 64 °C")
    assert "no GPU tells its temperature" in wait_until_cool(gate, None, lambda _: None)


def test_recipes_take_degrees_alone() -> None:
    base = {"name": "x", "target": {"command": ["true"]}}
    recipe = recipe_from_dict({**base, "wait_until": {"below": "55 °C", "timeout": "2m"}}, "x")
    assert recipe.wait_until == WaitUntil(below=55.0, timeout=120.0)
    for wrong in ("warm", "140F", True, 500):
        with pytest.raises(RecipeError):
            recipe_from_dict({**base, "wait_until": {"below": wrong}}, "x")


def test_samples_of_a_trace_stand_in_tables_report_and_timeline(root: Path, tmp_path: Path) -> None:
    trace = root / "captures" / "h200-known-gemm" / "steps" / "1-trace" / "trace.sqlite.xz"
    run = import_files([trace], tmp_path / "run").path
    with open_trace(trace) as opened:
        first, last = opened.identity().begin_ns, opened.identity().end_ns
    started = trace_start(trace)
    assert started is not None
    assert first is not None
    assert last is not None
    (row,) = open_source(nvml([63]))()
    busy = dict.fromkeys(gpm.METRICS, 40.0) | {"gpm_problem": ""}
    rows = [{**row, "utc_ns": started - 1}, {**row, **busy, "utc_ns": (first + last) // 2}]
    with (run / "steps" / "1-trace" / "nvml.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, monitor.FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    assert main(["report", str(run), "--png", "no"]) == 0
    telemetry = pd.read_parquet(run / "tables" / "telemetry.parquet")
    launches = pd.read_parquet(run / "tables" / "launches.parquet")
    assert telemetry["trace_ns"].iloc[0] == -1
    assert launches["start_ns"].min() < telemetry["trace_ns"].iloc[1] < launches["start_ns"].max()
    page = (run / "report" / "report.md").read_text()
    assert "Power, clock and temperature of the GPU" in page
    details = (run / "report" / "details.md").read_text()
    assert "sw thermal slowdown" in details
    assert "How busy the units of the GPU were" in details
    assert main(["export", str(run), "-o", str(tmp_path / "timeline.json")]) == 0
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    curves = {event["name"]: event["args"]["value"] for event in events if event["ph"] == "C"}
    assert curves == {
        "Power, W": 512.3,
        "SM clock, MHz": 1845.0,
        "Memory in use, GB": pytest.approx(row["memory_used_bytes"] * 1e-9),
        "Temperature, degrees C": 63.0,
        "SMs active, %": 40.0,
        "Tensor Cores active, %": 40.0,
        "DRAM active, %": 40.0,
    }
    (slice_,) = [event for event in events if event.get("cat") == "throttle"]
    assert slice_["name"] == "sw power cap, sw thermal slowdown"
