"""Samples GPUs of this machine: by NVML, or by nvidia-smi where NVML cannot be asked."""

from __future__ import annotations

import csv
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from nsight_prof.orchestrator.system import gpm
from nsight_prof.orchestrator.system.process import ask
from nsight_prof.parsers.errors import ToolMissing
from nsight_prof.parsers.whole_file import as_utf8

Sample = dict[str, Any]


class Source(Protocol):
    """Gives a sample of each GPU; what cannot be told is None."""

    def __call__(self, units: bool = True) -> list[Sample]:
        """Sample now; `units` false: do not ask GPM, whose counters ncu may be using."""


FIELDS = (
    *("utc_ns", "device", "gpu_util_pct", "memory_util_pct", "memory_used_bytes", "power_w"),
    *("sm_clock_hz", "memory_clock_hz", "temperature_c", "throttle"),
    *("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"),
    *gpm.FIELDS,
)
INTERVAL_S = 0.25
REASONS = {
    0x1: "gpu_idle", 0x2: "applications_clocks_setting", 0x4: "sw_power_cap", 0x8: "hw_slowdown",
    0x10: "sync_boost", 0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown", 0x100: "display_clock_setting",
}  # fmt: skip
"""Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, nvmlClocksEventReason*)."""
SMI = (
    *("index", "utilization.gpu", "utilization.memory", "memory.used", "power.draw", "clocks.sm"),
    *("clocks.mem", "temperature.gpu"),
)
UNITS_LEFT_OUT = dict.fromkeys(gpm.METRICS) | {"gpm_problem": "not asked while ncu counts"}
UNITS_BY_SMI = "nvidia-smi stands in for NVML"
_SMI_FIELDS = ("device", *FIELDS[2:9])
_SMI_UNITS = {"memory_used_bytes": 1 << 20, "sm_clock_hz": 1e6, "memory_clock_hz": 1e6}
_SMI_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU, _PCIE_TX, _PCIE_RX = 1, 2, 0, 0, 1


def open_source(nvml: Any = None, bus_ids: Sequence[str] | None = None) -> Source:
    """Return what samples the GPUs.

    Args:
        nvml: a module with pynvml's functions.
        bus_ids: of the GPUs that NVML samples, as CUDA writes them; None: all. nvidia-smi samples
            all.

    Raises:
        ToolMissing: neither NVML nor nvidia-smi tells of a GPU.
    """
    try:
        if nvml is None:
            import pynvml

            nvml = pynvml
        nvml.nvmlInit()
        handles = {
            n: nvml.nvmlDeviceGetHandleByIndex(n) for n in range(int(nvml.nvmlDeviceGetCount()))
        }
        if bus_ids is not None:
            found = (nvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode()) for bus_id in bus_ids)
            indexes = {int(nvml.nvmlDeviceGetIndex(handle)) for handle in found}
            handles = {n: handle for n, handle in handles.items() if n in indexes}
    except Exception as error:  # pynvml's own errors cannot be named where it is missing
        reason, handles = str(error), {}
    else:
        reason = "it shows no GPU"
    if handles:
        return _ByNvml(nvml, handles)
    reasons = next((name for name in _SMI_REASONS if _by_smi(name)), None)
    if reasons is None:
        raise ToolMissing(
            f"no GPU can be sampled: NVML says: {reason}; nvidia-smi gives nothing either",
            "prof doctor says what is missing; in a container, start it with --gpus all",
        )
    return lambda units=True: _by_smi(reasons)


class _ByNvml:
    def __init__(self, nvml: Any, handles: Mapping[int, Any]) -> None:
        self._nvml, self._handles = nvml, handles
        self._gpms: dict[int, gpm.Gpm] = {}  # made when they are first asked

    def __call__(self, units: bool = True) -> list[Sample]:
        if units and not self._gpms:
            self._gpms = {n: gpm.Gpm(self._nvml, handle) for n, handle in self._handles.items()}
        return [
            _by_nvml(self._nvml, n, handle) | (self._gpms[n].sample() if units else UNITS_LEFT_OUT)
            for n, handle in self._handles.items()
        ]


def _by_nvml(nvml: Any, device: int, handle: Any) -> Sample:
    def answer(call: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, f"nvmlDevice{call}")(handle, *arguments)
        except Exception:  # NVMLError, and what a module of another version lacks
            return None

    def scaled(call: str, factor: float, *arguments: Any) -> float | None:
        found = answer(call, *arguments)
        return None if found is None else float(found) * factor

    use = answer("GetUtilizationRates")
    # The second version leaves out what the driver keeps for itself, as nvidia-smi does: the first
    # one has 480 MiB of an idle H100 in use (driver 580).
    version = getattr(nvml, "nvmlMemory_v2", None)
    memory = answer("GetMemoryInfo", version) or answer("GetMemoryInfo")
    bits = answer("GetCurrentClocksEventReasons")
    if bits is None:
        bits = answer("GetCurrentClocksThrottleReasons")
    return {
        "utc_ns": time.time_ns(),
        "device": device,
        "gpu_util_pct": None if use is None else float(use.gpu),
        "memory_util_pct": None if use is None else float(use.memory),
        "memory_used_bytes": None if memory is None else float(memory.used),
        "power_w": scaled("GetPowerUsage", 1e-3),
        "sm_clock_hz": scaled("GetClockInfo", 1e6, _CLOCK_SM),
        "memory_clock_hz": scaled("GetClockInfo", 1e6, _CLOCK_MEMORY),
        "temperature_c": scaled("GetTemperature", 1.0, _TEMPERATURE_GPU),
        "throttle": None if bits is None else _reasons(int(bits)),
        "pcie_rx_bytes_per_s": scaled("GetPcieThroughput", 1e3, _PCIE_RX),
        "pcie_tx_bytes_per_s": scaled("GetPcieThroughput", 1e3, _PCIE_TX),
    }


def _by_smi(reasons: str) -> list[Sample]:
    """Ask nvidia-smi once; empty where it gives nothing. It does not tell the traffic of PCIe."""
    query = ",".join((*SMI, reasons))
    answer = ask(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"])
    now, found = time.time_ns(), []
    for line in answer.stdout.splitlines() if answer.exit_code == 0 else ():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(SMI) + 1 or not cells[0].isdigit():
            continue
        row: Sample = dict.fromkeys(FIELDS) | {"utc_ns": now, "gpm_problem": UNITS_BY_SMI}
        for name, cell in zip(_SMI_FIELDS, cells, strict=False):
            factor = _SMI_UNITS.get(name, 1.0)
            row[name] = float(cell) * factor if _NUMBER.fullmatch(cell) else None
        row["device"] = int(cells[0])
        with suppress(ValueError):
            row["throttle"] = _reasons(int(cells[-1], 16))
        found.append(row)
    return found


def _reasons(bits: int) -> str:
    return ", ".join(name for bit, name in REASONS.items() if bits & bit)


def samples(
    source: Source, interval_s: float, end: threading.Event, duration_s: float | None = None
) -> Iterator[list[Sample]]:
    """Yield samples of all GPUs every `interval_s` seconds until `end`, or for `duration_s`."""
    begin = due = time.monotonic()
    while not end.is_set():
        yield source()
        # A slow source leaves samples out; it does not make the next ones come in a hurry.
        due = max(due + interval_s, time.monotonic())
        if duration_s is not None and due - begin >= duration_s:
            return
        end.wait(due - time.monotonic())


@contextmanager
def sampled(path: Path, source: Source | None) -> Iterator[None]:
    """Write samples to the CSV `path` while the block runs; nothing without a source."""
    if source is None:
        yield
        return
    end = threading.Event()
    thread = threading.Thread(target=_write, args=(path, source, end), daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(timeout=10)


def _write(path: Path, source: Source, end: threading.Event) -> None:
    # A full disk must not end the run: its own files say so.
    with suppress(OSError), path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, FIELDS)
        writer.writeheader()
        for rows in samples(source, INTERVAL_S, end):
            writer.writerows(rows)
            stream.flush()


def as_cells(sample: Mapping[str, Any], fields: Sequence[str] = FIELDS) -> list[str]:
    """Return the cells of a sample as text; empty where unknown."""
    return [
        "" if (value := sample.get(name)) is None else as_utf8(f"{value}").decode()
        for name in fields
    ]
