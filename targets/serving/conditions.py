"""Under what a serving target measures, asked of the driver and NVML: no torch, no CUDA context.

The process that drives an engine or a server must not hold GPU memory itself, and importing torch
for a few facts would take it seconds.
"""

from __future__ import annotations

import ctypes
import platform
import re
import sys
import time
import uuid
from collections.abc import Sequence
from importlib import metadata, util
from pathlib import Path
from typing import Any

from nsight_prof.targets.harness.conditions import GPU_FACTS
from nsight_prof.targets.harness.nvml import CLOCK_MEMORY, CLOCK_SM
from nsight_prof.targets.serving.telemetry import load_nvml

# enum CUdevice_attribute, cuda.h
MULTIPROCESSORS, L2_CACHE, MAJOR, MINOR = 16, 38, 75, 76


def visible_gpus() -> list[dict[str, Any]]:
    """Return uuid, sm_count, l2_bytes and compute_capability of the GPUs that CUDA shows.

    In CUDA's order, so that CUDA_VISIBLE_DEVICES counts; empty without a driver or a GPU. cuInit
    makes no context, so that no GPU memory is taken.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    return [_gpu(cuda, device) for device in range(count.value)]


def _gpu(cuda: Any, device: int) -> dict[str, Any]:
    def attribute(number: int) -> int | None:
        value = ctypes.c_int()
        failed = cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return None if failed else value.value

    raw = (ctypes.c_ubyte * 16)()
    # The older call gives a MIG instance's GPU, not the instance.
    ask = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    known = ask(ctypes.byref(raw), device) == 0
    major, minor = attribute(MAJOR), attribute(MINOR)
    return {
        "uuid": f"GPU-{uuid.UUID(bytes=bytes(raw))}" if known else None,
        "sm_count": attribute(MULTIPROCESSORS),
        "l2_bytes": attribute(L2_CACHE),
        "compute_capability": None if major is None else f"{major}.{minor}",
    }


def conditions(
    argv: Sequence[str], seed: int, gpus: Sequence[dict[str, Any]], nvml: Any = None
) -> dict[str, Any]:
    """Return the facts of a `conditions` record.

    Args:
        argv: command line of the target, without the program.
        seed: of the data.
        gpus: of `visible_gpus`; the first is described. None there: device "cpu", gpu null.
        nvml: module with pynvml's functions; None looks for it.
    """
    asked = _Nvml(nvml, gpus[0]["uuid"] if gpus else None)
    return {
        "argv": list(argv),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seed": seed,
        "device": "cuda" if gpus else "cpu",
        "gpu": None if not gpus else dict.fromkeys(GPU_FACTS) | asked.facts() | gpus[0],
        "software": {
            "driver": asked.driver(),
            "cuda": _torch_cuda(),
            "cudnn": _version("nvidia-cudnn-cu13") or _version("nvidia-cudnn-cu12"),
            "torch": _version("torch"),
            "triton": _version("triton"),
            "python": platform.python_version(),
        },
    }


class _Nvml:
    """One GPU in NVML; every fact is None where NVML cannot tell it."""

    def __init__(self, module: Any, gpu: str | None) -> None:
        self._module, self._handle = None, None
        try:
            self._module = load_nvml() if module is None else module
            self._module.nvmlInit()
            if gpu is not None:
                self._handle = self._module.nvmlDeviceGetHandleByUUID(gpu.encode())
        except Exception as error:  # pynvml's own errors cannot be named where it is missing
            print(f"note: NVML tells nothing of the GPU: {error}", file=sys.stderr)

    def driver(self) -> str | None:
        found = self._call("nvmlSystemGetDriverVersion")
        return _text(found)

    def facts(self) -> dict[str, Any]:
        memory = self._ask("GetMemoryInfo")
        limit = self._ask("GetEnforcedPowerLimit")
        return {
            "name": _text(self._ask("GetName")),
            "memory_bytes": None if memory is None else int(memory.total),
            "max_sm_clock_hz": _hz(self._ask("GetMaxClockInfo", CLOCK_SM)),
            "max_memory_clock_hz": _hz(self._ask("GetMaxClockInfo", CLOCK_MEMORY)),
            "sm_clock_hz": _hz(self._ask("GetClockInfo", CLOCK_SM)),
            "memory_clock_hz": _hz(self._ask("GetClockInfo", CLOCK_MEMORY)),
            "power_limit_w": None if limit is None else int(limit) * 1e-3,
            "temperature_c": self._ask("GetTemperature", 0),
            "pcie_generation": self._ask("GetCurrPcieLinkGeneration"),
            "pcie_width": self._ask("GetCurrPcieLinkWidth"),
        }

    def _ask(self, call: str, *arguments: Any) -> Any:
        if self._handle is None:
            return None
        return self._call(f"nvmlDevice{call}", self._handle, *arguments)

    def _call(self, name: str, *arguments: Any) -> Any:
        function = getattr(self._module, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except Exception:  # NVMLError, and what a module of another version raises
            return None


def _hz(mhz: Any) -> float | None:
    return None if mhz is None else float(mhz) * 1e6


def _text(found: Any) -> str | None:
    if found is None:
        return None
    return found.decode() if isinstance(found, bytes) else str(found)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _torch_cuda() -> str | None:
    """Return the CUDA that torch was built with, from its file of versions: it is not imported."""
    found = util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).with_name("version.py")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    stated = re.search(r"^cuda\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return None if stated is None else stated[1]
