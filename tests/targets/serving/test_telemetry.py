"""Telemetry from a stand-in for NVML: what it samples, what it cannot tell, and how it ends."""

import io
import json
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.targets.serving.conditions import conditions
from nsight_prof.targets.serving.records import Records
from nsight_prof.targets.serving.telemetry import FIELDS, Telemetry, load_nvml

GPU = {"uuid": "GPU-1", "sm_count": 132, "l2_bytes": 60 << 20, "compute_capability": "9.0"}


class Unknown(Exception):
    pass


class Nvml:
    """NVML of GPUs that draw 500 W. `without` names calls that fail."""

    def __init__(self, *without: str) -> None:
        self.without = without

    def nvmlInit(self) -> None:
        if "nvmlInit" in self.without:
            raise Unknown("driver not loaded")

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> bytes:
        if uuid == b"GPU-9":
            raise Unknown("no such GPU")
        return uuid

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        answers: dict[str, Any] = {
            "GetUtilizationRates": types.SimpleNamespace(gpu=97, memory=40),
            "GetMemoryInfo": types.SimpleNamespace(used=5 << 30, total=141 << 30),
            "GetFieldValues": [
                types.SimpleNamespace(nvmlReturn=0, value=types.SimpleNamespace(uiVal=500_000))
            ],
            "GetPowerUsage": 450_000,
            "GetClockInfo": 1980,
            "GetTemperature": 51,
            "GetCurrentClocksEventReasons": 0x4,
            "GetName": b"NVIDIA H200",
        }
        call = name.removeprefix("nvmlDevice")
        if call not in answers:
            raise AttributeError(name)
        if call in self.without:

            def fail(*_: Any) -> None:
                raise Unknown(call)

            return fail
        return lambda *_: answers[call]


def sampled(nvml: Any, uuids: list[str], samples: int = 3) -> list[dict[str, Any]]:
    stream = io.StringIO()
    with Telemetry(Records(stream, "x"), uuids, 0.001, nvml) as telemetry:
        assert telemetry.problem == ""
        while stream.getvalue().count("\n") < samples:
            time.sleep(0.005)
    end = stream.getvalue()
    time.sleep(0.01)
    assert stream.getvalue() == end  # nothing is written after the context
    return [json.loads(line) for line in end.splitlines()]


def test_each_gpu_is_sampled_in_base_units() -> None:
    found = sampled(Nvml(), ["GPU-1", "GPU-2"])
    assert {record["device"] for record in found} == {0, 1}
    first = found[0]
    assert set(FIELDS) <= set(first)
    assert first["gpu_util_pct"] == 97
    assert first["memory_used_bytes"] == 5 << 30
    assert first["power_w"] == 500
    assert first["sm_clock_hz"] == 1.98e9
    assert first["throttle"] == ["sw_power_cap"]
    times = [record["t_s"] for record in found if record["device"] == 0]
    assert times == sorted(times)


def test_what_nvml_cannot_tell_is_null_and_power_has_a_second_source() -> None:
    nvml = Nvml("GetUtilizationRates", "GetFieldValues", "GetCurrentClocksEventReasons")
    first = sampled(nvml, ["GPU-1"])[0]
    assert (first["gpu_util_pct"], first["throttle"]) == (None, None)
    assert first["power_w"] == 450


@pytest.mark.parametrize(
    ("nvml", "uuids", "words"),
    [
        (Nvml("nvmlInit"), ["GPU-1"], "driver not loaded"),
        (Nvml(), ["GPU-9"], "no such GPU"),
        (Nvml(), [], "no GPU"),
    ],
)
def test_without_nvml_nothing_is_sampled_and_the_reason_is_told(
    nvml: Any, uuids: list[str], words: str
) -> None:
    stream = io.StringIO()
    before = threading.active_count()
    with Telemetry(Records(stream, "x"), uuids, 0.001, nvml) as telemetry:
        assert words in telemetry.problem
        assert threading.active_count() == before
    assert stream.getvalue() == ""


def test_the_thread_ends_where_nobody_reads_the_records_any_more() -> None:
    stream = io.StringIO()
    with Telemetry(Records(stream, "x"), ["GPU-1"], 0.001, Nvml()) as telemetry:
        stream.close()
        thread = telemetry._thread
        assert thread is not None
        thread.join()


def test_the_copy_of_nvml_in_vllm_is_used_without_importing_vllm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "vllm"
    (package / "third_party").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    (package / "third_party" / "pynvml.py").write_text("WHOSE = 'vllm'\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert load_nvml().WHOSE == "vllm"


def test_conditions_join_what_cuda_and_nvml_say() -> None:
    found = conditions([], 0, [GPU], Nvml())
    assert found["gpu"]["name"] == "NVIDIA H200"
    assert found["gpu"]["memory_bytes"] == 141 << 30
    assert found["gpu"]["sm_count"] == 132
    assert found["gpu"]["power_limit_w"] is None  # this NVML does not know the call
    assert found["software"]["driver"] == "580.1"
