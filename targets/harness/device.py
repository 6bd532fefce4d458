"""What the harness asks about the device: torch's properties, and stand-ins for a CPU."""

from __future__ import annotations

from typing import Any

CPU_CACHE_BYTES = 64 << 10
"""Stands for the L2 where there is no GPU. Small, because sizes made of it only run the code."""


def is_cuda(device: Any) -> bool:
    """Tell whether a torch.device or its name is a CUDA device."""
    return str(device).startswith("cuda")


def sm_count(device: Any) -> int:
    """Return the number of streaming multiprocessors; 1 for a CPU."""
    if not is_cuda(device):
        return 1
    import torch

    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def l2_bytes(device: Any) -> int:
    """Return the size of the L2 cache in bytes; a stand-in for a CPU."""
    if not is_cuda(device):
        return CPU_CACHE_BYTES
    import torch

    return int(torch.cuda.get_device_properties(device).L2_cache_size)
