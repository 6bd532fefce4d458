"""Power, clocks and throttling of the GPU that torch uses, by NVML (nvidia-ml-py); optional."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, nvmlClocksEventReason*)."""
THROTTLES = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""Bits that mark a sample: power cap, thermal and hardware slowdown."""
POLICY_POWER, POLICY_THERMAL = 0, 1
CLOCK_SM, CLOCK_MEMORY = 1, 2
ENERGY_SPAN_S = 0.1
"""Least time between the first and the last change of the energy counter for a mean power."""


class Nvml:
    """One GPU in NVML. Every question returns None where NVML cannot answer it."""

    def __init__(self, uuid: str) -> None:
        """Find the GPU by its UUID.

        Raises:
            Exception: pynvml is missing, NVML does not start, or knows no such GPU.
        """
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        self._gpu = pynvml.nvmlDeviceGetHandleByUUID(name.encode())
        self.uuid = name

    def ask(self, call: str, *arguments: Any) -> Any:
        """Return what nvmlDevice<call> says of this GPU; None where it cannot say."""
        function: Callable[..., Any] | None = getattr(self._nvml, f"nvmlDevice{call}", None)
        if function is None:
            return None
        try:
            return function(self._gpu, *arguments)
        except (self._nvml.NVMLError, OSError, TypeError, ValueError):
            return None

    def driver(self) -> str | None:
        """Return the driver's version."""
        try:
            version = self._nvml.nvmlSystemGetDriverVersion()
        except self._nvml.NVMLError:
            return None
        return version.decode() if isinstance(version, bytes) else str(version)

    def reasons(self) -> int | None:
        """Return the bits of why the clocks are what they are now."""
        found = self.ask("GetCurrentClocksEventReasons")
        if found is None:
            found = self.ask("GetCurrentClocksThrottleReasons")
        return None if found is None else int(found)

    def violation_s(self, policy: int) -> float | None:
        """Return for how many seconds in all a policy has held the clocks down."""
        status = self.ask("GetViolationStatus", policy)
        return None if status is None else int(status.violationTime) * 1e-9

    def energy_j(self) -> float | None:
        """Return the energy counter in joules."""
        found = self.ask("GetTotalEnergyConsumption")
        return None if found is None else int(found) * 1e-3

    def temperature_c(self) -> float | None:
        """Return the temperature of the GPU in degrees Celsius."""
        found = self.ask("GetTemperature", 0)
        return None if found is None else float(found)

    def clock_hz(self, domain: int, highest: bool = False) -> float | None:
        """Return the clock of a domain now, or the highest it can have, in Hz."""
        found = self.ask("GetMaxClockInfo" if highest else "GetClockInfo", domain)
        return None if found is None else float(found) * 1e6

    def power_limit_w(self) -> float | None:
        """Return the enforced power limit in watts."""
        found = self.ask("GetEnforcedPowerLimit")
        return None if found is None else int(found) * 1e-3


def make_nvml(uuid: str | None) -> tuple[Nvml | None, str]:
    """Return NVML for the GPU of that UUID, or None and the reason."""
    if not uuid:
        return None, "torch does not tell the UUID of the GPU"
    try:
        return Nvml(uuid), ""
    except Exception as error:  # pynvml's own errors cannot be named where it is missing
        return None, f"NVML cannot be used: {error}"


@dataclass
class Watch:
    """What NVML saw while a case was sampled: throttling and energy. Use as a context."""

    nvml: Nvml | None
    bits: int = 0
    known: bool = False
    power_s: float | None = None
    thermal_s: float | None = None
    temperature_c: float | None = None
    _edges: list[tuple[float, float]] = field(default_factory=list)
    _last_poll: float = -math.inf
    _held_down: bool = False
    _before: tuple[float | None, float | None] = (None, None)

    def __enter__(self) -> Watch:
        if self.nvml is not None:
            self._before = self._violations(self.nvml)
        return self

    def __exit__(self, *_: object) -> None:
        if self.nvml is None:
            return
        after = self._violations(self.nvml)
        self.power_s, self.thermal_s = (
            None if was is None or now is None else max(now - was, 0.0)
            for was, now in zip(self._before, after, strict=True)
        )
        self.temperature_c = self.nvml.temperature_c()

    @staticmethod
    def _violations(nvml: Nvml) -> tuple[float | None, float | None]:
        return nvml.violation_s(POLICY_POWER), nvml.violation_s(POLICY_THERMAL)

    def poll(self, every_s: float = 0.005) -> bool:
        """Return whether the clocks are held down; NVML is not asked again before `every_s`."""
        if self.nvml is None or time.perf_counter() - self._last_poll < every_s:
            return self._held_down
        self._last_poll = time.perf_counter()
        bits = self.nvml.reasons()
        if bits is not None:
            self.known = True
            self.bits |= bits
        energy = self.nvml.energy_j()
        if energy is not None and (not self._edges or energy > self._edges[-1][1]):
            self._edges.append((time.perf_counter(), energy))
        self._held_down = bool((bits or 0) & THROTTLES)
        return self._held_down

    def forget_energy(self) -> None:
        """Start the energy anew: what was drawn until now was not the case's steady load."""
        self._edges.clear()

    @property
    def power_w(self) -> float | None:
        """Mean power between the first and the last change of the energy counter that was seen.

        The first reading is none of them: the counter had changed at an unknown time before it.
        """
        edges = self._edges[1:]
        if len(edges) < 2 or edges[-1][0] - edges[0][0] < ENERGY_SPAN_S:
            return None
        return (edges[-1][1] - edges[0][1]) / (edges[-1][0] - edges[0][0])

    @property
    def reasons(self) -> list[str]:
        """Names of the reasons that were seen, without idleness."""
        return [name for bit, name in REASONS.items() if self.bits & bit and bit != 0x1]
