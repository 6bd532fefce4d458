"""Own CUDA C kernels: compiled by NVRTC and launched on torch's stream through cuda.bindings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from targets.harness.api import Unsupported

Dim = int | tuple[int, int, int]


@dataclass(frozen=True)
class CInt32:
    """A kernel argument declared `int`."""

    value: int


@dataclass(frozen=True)
class CFloat:
    """A kernel argument declared `float`."""

    value: float


class Kernel:
    """A kernel of a `CudaModule`."""

    registers: int = 0

    def __call__(self, grid: Dim, block: Dim, args: Sequence[Any], shared: int = 0) -> None:
        """Launch on torch's current stream."""
        raise Unsupported("not written yet")

    def allow_shared(self, size: int) -> None:
        """Allow `size` bytes of dynamic shared memory a block."""
        raise Unsupported("not written yet")

    def occupancy(self, block: int, shared: int = 0) -> int:
        """Return the blocks that are resident on one SM at a time."""
        raise Unsupported("not written yet")


class CudaModule:
    """CUDA C source compiled for the current device."""

    def __init__(self, source: str, options: Sequence[str] = ()) -> None:
        raise Unsupported("not written yet")

    def function(self, name: str) -> Kernel:
        """Return a kernel declared `extern "C" __global__`."""
        raise Unsupported("not written yet")
