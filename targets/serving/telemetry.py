"""Samples the GPUs by NVML in a thread: utilization, memory, power, clocks, heat, throttling."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nsight_prof.targets.harness.nvml import CLOCK_MEMORY, CLOCK_SM, REASONS
from nsight_prof.targets.serving.records import Records

FIELDS = (
    "t_s",
    "device",
    "gpu_util_pct",
    "memory_util_pct",
    "memory_used_bytes",
    "power_w",
    "sm_clock_hz",
    "memory_clock_hz",
    "temperature_c",
    "throttle",
)
EVERY_S = 0.1
POWER_INSTANT = 186
"""NVML_FI_DEV_POWER_INSTANT (nvml.h): in mW, of now; nvmlDeviceGetPowerUsage is a mean of 1 s."""
TEMPERATURE_GPU = 0


class Telemetry:
    """Writes a `telemetry` record of each GPU every `every_s` seconds. Use as a context.

    It needs neither CUDA nor torch, so that the process that samples takes no GPU memory and
    shares no interpreter lock with what is measured.

    Attributes:
        problem: why NVML cannot be asked, "" where it can; then nothing is written.
    """

    def __init__(
        self, records: Records, uuids: Sequence[str], every_s: float = EVERY_S, nvml: Any = None
    ) -> None:
        """Find the GPUs.

        Args:
            records: what writes; its clock is the samples'.
            uuids: of the GPUs, as NVML writes them; `device` is the place in this list.
            every_s: seconds between samples.
            nvml: module with pynvml's functions; None looks for it.
        """
        self.problem = ""
        self._records = records
        self._every_s = every_s
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._gpus: list[Gpu] = []
        try:
            module = load_nvml() if nvml is None else nvml
            module.nvmlInit()
            self._gpus = [
                Gpu(module, device, module.nvmlDeviceGetHandleByUUID(uuid.encode()))
                for device, uuid in enumerate(uuids)
            ]
        except Exception as error:  # pynvml's own errors cannot be named where it is missing
            self.problem = f"NVML cannot be used: {error}"
        else:
            if not self._gpus:
                self.problem = "NVML was not asked: no GPU is known by its UUID"

    def __enter__(self) -> Telemetry:
        if self._gpus:
            self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        due = self._records.now()
        while True:
            try:
                for gpu in self._gpus:
                    self._records.telemetry(gpu.sample(self._records.now()))
            except (OSError, ValueError):  # nobody reads the records any more
                return
            # A slow NVML skips samples; it does not make the next ones come in a hurry.
            due = max(due + self._every_s, self._records.now())
            if self._end.wait(due - self._records.now()):
                return


class Gpu:
    """One GPU in NVML. What NVML cannot say is None."""

    def __init__(self, nvml: Any, device: int, handle: Any) -> None:
        self._nvml, self._device, self._handle = nvml, device, handle

    def sample(self, t_s: float) -> dict[str, Any]:
        """Return the fields of a `telemetry` record for a moment."""
        use = self._ask("GetUtilizationRates")
        memory = self._ask("GetMemoryInfo")
        return {
            "t_s": t_s,
            "device": self._device,
            "gpu_util_pct": None if use is None else int(use.gpu),
            "memory_util_pct": None if use is None else int(use.memory),
            "memory_used_bytes": None if memory is None else int(memory.used),
            "power_w": self._power_w(),
            "sm_clock_hz": self._clock_hz(CLOCK_SM),
            "memory_clock_hz": self._clock_hz(CLOCK_MEMORY),
            "temperature_c": self._ask("GetTemperature", TEMPERATURE_GPU),
            "throttle": self._throttle(),
        }

    def _power_w(self) -> float | None:
        found = self._ask("GetFieldValues", [POWER_INSTANT])
        if found and getattr(found[0], "nvmlReturn", 1) == 0:
            return int(found[0].value.uiVal) * 1e-3
        usage = self._ask("GetPowerUsage")
        return None if usage is None else int(usage) * 1e-3

    def _clock_hz(self, domain: int) -> float | None:
        found = self._ask("GetClockInfo", domain)
        return None if found is None else float(found) * 1e6

    def _throttle(self) -> list[str] | None:
        bits = self._ask("GetCurrentClocksEventReasons")
        if bits is None:
            bits = self._ask("GetCurrentClocksThrottleReasons")
        if bits is None:
            return None
        return [name for bit, name in REASONS.items() if int(bits) & bit]

    def _ask(self, call: str, *arguments: Any) -> Any:
        function = getattr(self._nvml, f"nvmlDevice{call}", None)
        if function is None:
            return None
        try:
            return function(self._handle, *arguments)
        except Exception:  # NVMLError, and what a module of another version raises
            return None


def load_nvml() -> Any:
    """Return the module pynvml, or the copy that vLLM brings, without importing vLLM and torch.

    Raises:
        ImportError: there is neither.
    """
    try:
        import pynvml
    except ImportError:
        found = importlib.util.find_spec("vllm")
        for folder in (found.submodule_search_locations or ()) if found is not None else ():
            path = Path(folder) / "third_party" / "pynvml.py"
            spec = importlib.util.spec_from_file_location("vllm_pynvml", path)
            if path.is_file() and spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                return module
        raise
    return pynvml
