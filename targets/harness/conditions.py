"""Under what a process measures: the GPU, its clocks and limits, and the versions of software."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

from nsight_prof.targets.harness.device import is_cuda
from nsight_prof.targets.harness.nvml import CLOCK_MEMORY, CLOCK_SM, Nvml

GPU_FACTS = (
    "name",
    "uuid",
    "sm_count",
    "l2_bytes",
    "memory_bytes",
    "compute_capability",
    "max_sm_clock_hz",
    "max_memory_clock_hz",
    "sm_clock_hz",
    "memory_clock_hz",
    "power_limit_w",
    "temperature_c",
    "pcie_generation",
    "pcie_width",
)


def gpu_uuid(device: Any) -> str | None:
    """Return the UUID of torch's device as NVML writes it, None where torch does not tell."""
    if not is_cuda(device):
        return None
    import torch

    found = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if found is None:
        return None
    return str(found) if str(found).startswith(("GPU-", "MIG-")) else f"GPU-{found}"


def gpu(device: Any, nvml: Nvml | None) -> dict[str, Any] | None:
    """Return the facts of a CUDA device, each None where nothing tells; None for a CPU."""
    if not is_cuda(device):
        return None
    import torch

    properties = torch.cuda.get_device_properties(device)
    facts: dict[str, Any] = dict.fromkeys(GPU_FACTS)
    facts |= {
        "name": str(properties.name),
        "uuid": gpu_uuid(device),
        "sm_count": int(properties.multi_processor_count),
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "memory_bytes": int(properties.total_memory),
        "compute_capability": f"{properties.major}.{properties.minor}",
    }
    if nvml is not None:
        facts |= {
            "uuid": nvml.uuid,
            "max_sm_clock_hz": nvml.clock_hz(CLOCK_SM, highest=True),
            "max_memory_clock_hz": nvml.clock_hz(CLOCK_MEMORY, highest=True),
            "sm_clock_hz": nvml.clock_hz(CLOCK_SM),
            "memory_clock_hz": nvml.clock_hz(CLOCK_MEMORY),
            "power_limit_w": nvml.power_limit_w(),
            "temperature_c": nvml.temperature_c(),
            "pcie_generation": nvml.ask("GetCurrPcieLinkGeneration"),
            "pcie_width": nvml.ask("GetCurrPcieLinkWidth"),
        }
    return facts


def software(nvml: Nvml | None) -> dict[str, str | None]:
    """Return the versions of what takes part, None where it is not there."""
    import torch

    try:  # importing it only for its version would take a second
        triton: str | None = metadata.version("triton")
    except metadata.PackageNotFoundError:
        triton = None
    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    return {
        "driver": None if nvml is None else nvml.driver(),
        "cuda": torch.version.cuda,
        "cudnn": None if cudnn is None else str(cudnn),
        "torch": str(torch.__version__),
        "triton": triton,
        "python": platform.python_version(),
    }
