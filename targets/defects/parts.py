"""What the programs of the later sets are made of: kernels of .cu files, tensors of results."""

from __future__ import annotations

from typing import Any

from nsight_prof.targets.defects.own_kernels import source
from nsight_prof.targets.harness import CudaModule, Kernel
from nsight_prof.targets.harness import sm_count as _sms_of


def sm_count() -> int:
    """Return the number of SMs of the current GPU."""
    import torch

    return _sms_of(torch.device("cuda"))


def kernel(file: str, name: str, *options: str) -> Kernel:
    """Return a kernel of a .cu file of this folder, compiled with more options of NVRTC.

    Raises:
        Unsupported: cuda.bindings, NVRTC or the driver is missing.
        CudaError: the source does not compile, or has no such kernel.
    """
    return CudaModule(source(file), options).function(name)


def zeros(*shape: int, dtype: str = "float32") -> tuple[Any, Any]:
    """Return the two tensors of this shape that the programs of a pair write."""
    import torch

    kind = getattr(torch, dtype)
    one, other = (torch.zeros(*shape, device="cuda", dtype=kind) for _ in range(2))
    return one, other


def normal(*shape: int, dtype: str = "bfloat16") -> Any:
    """Return a tensor of this shape with normally distributed values."""
    import torch

    return torch.empty(*shape, dtype=getattr(torch, dtype), device="cuda").normal_()
