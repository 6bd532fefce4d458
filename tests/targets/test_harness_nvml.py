"""Throttling, power and energy, from a stand-in for NVML that keeps a simulated time."""

import time
from typing import Any

import pytest

from nsight_prof.targets.harness.nvml import Watch, make_nvml


class Nvml:
    """A GPU that caps its power and draws 500 W of simulated time."""

    nvml = None
    uuid = "GPU-1"

    def __init__(self) -> None:
        self.now = 0.0
        self.bits = 0x1

    def reasons(self) -> int:
        return self.bits

    def violation_s(self, policy: int) -> float | None:
        return self.now if policy == 0 else None

    def energy_j(self) -> float:
        return 500 * (self.now // 0.02 * 0.02)  # the counter moves every 20 ms

    def temperature_c(self) -> float:
        return 41.0


def test_throttling_and_power_come_from_what_nvml_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = Nvml()
    monkeypatch.setattr(time, "perf_counter", lambda: gpu.now)
    with Watch(gpu) as watch:
        assert not watch.poll()
        for _ in range(50):
            gpu.now += 0.01
            gpu.bits = 0x4 if gpu.now > 0.2 else 0
            watch.poll()
        assert watch.poll()  # not asked again so soon, but still held down
    assert watch.reasons == ["sw_power_cap"]
    assert watch.power_s == pytest.approx(0.5)
    assert watch.thermal_s is None
    assert watch.power_w == pytest.approx(500, rel=0.05)
    assert watch.temperature_c == 41.0


def test_a_short_case_has_no_power(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = Nvml()
    monkeypatch.setattr(time, "perf_counter", lambda: gpu.now)
    with Watch(gpu) as watch:
        for _ in range(8):
            gpu.now += 0.01
            watch.poll()
    assert watch.power_w is None


def test_without_nvml_nothing_is_claimed() -> None:
    nvml, reason = make_nvml(None)
    assert nvml is None
    assert "UUID" in reason
    with Watch(None) as watch:
        assert not watch.poll()
    assert watch.power_s is watch.power_w is watch.temperature_c is None
    assert not watch.known
