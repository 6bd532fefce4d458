"""Kernels and buffers that the memory patterns share: targets/memory_patterns.cu and its tiles."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from nsight_prof.targets.harness import CudaModule, Kernel, Setup, is_cuda

VECTOR_BYTES = 16
BLOCK = 256
UNROLL = 4
TILE_VECTORS = BLOCK * UNROLL
TILE_BYTES = TILE_VECTORS * VECTOR_BYTES
"""Bytes that one block moves: 16 KiB, four vectors of 16 B per thread."""

KIB, MIB = 1 << 10, 1 << 20


@cache
def _module() -> CudaModule:
    source = Path(__file__).with_name("memory_patterns.cu").read_text(encoding="utf-8")
    return CudaModule(source, options=(f"-DUNROLL={UNROLL}",))


@cache
def kernel(name: str) -> Kernel:
    """Return a kernel of memory_patterns.cu, compiled at its first use.

    Raises:
        targets.harness.Unsupported: no cuda.bindings here, so no own kernels.
    """
    return _module().function(name)


class Pool:
    """Buffers that all cases share, made when first asked for and kept until the program ends.

    Cases must not free gigabytes between each other: on an H200, those after one that had freed
    16 GB or more were a tenth slower for their first tens of milliseconds, then as fast as under
    ncu. The driver clearing the freed memory is the likely cause.

    Attributes:
        least: bytes of each buffer on a GPU; larger ones are made where a case asks for more.
    """

    def __init__(self) -> None:
        self.least = 0
        self._made: dict[tuple[str, str, int, bool, int], Any] = {}

    def take(self, setup: Setup, size: int, copy: int, *, filled: bool) -> Any:
        """Return the first `size` bytes of a buffer as bf16 values.

        Raises:
            torch.OutOfMemoryError: they do not fit into the device's memory.
        """
        seed = setup.seed if filled else 0
        key = (str(setup.device), setup.data if filled else "", copy, filled, seed)
        count = max(size, VECTOR_BYTES) // 2
        if key not in self._made or self._made[key].numel() < count:
            self._made.pop(key, None)
            whole = max(count, self.least // 2 if is_cuda(setup.device) else 0)
            self._made[key] = _filled(setup, whole, copy) if filled else _empty(setup, whole)
        return self._made[key][:count]


POOL = Pool()


def buffer(setup: Setup, size: int, copy: int, *, filled: bool = True) -> Any:
    """Return a tensor of `size` bytes (at least one vector): bf16 values, N(0, 1) or zeros.

    Args:
        setup: device, kind of data and seed.
        size: bytes, even.
        copy: number of the copy: each has values of its own.
        filled: False for a buffer that is only written, whatever values it has.
    """
    return POOL.take(setup, size, copy, filled=filled)


def _empty(setup: Setup, count: int) -> Any:
    import torch

    return torch.empty(count, dtype=torch.bfloat16, device=setup.device)


def _filled(setup: Setup, count: int, copy: int) -> Any:
    import torch

    made = _empty(setup, count)
    if setup.data == "zeros":
        return made.zero_()
    generator = torch.Generator(device=setup.device).manual_seed(setup.seed + copy)
    return made.normal_(generator=generator)


def sink(setup: Setup) -> Any:
    """Return the word that keeps a compiler from leaving reads out."""
    import torch

    return torch.zeros(1, dtype=torch.int32, device=setup.device)


def size_text(size: int) -> str:
    """Return bytes as names and tables have them: "512 B", "16 KiB", "128 MiB"."""
    for step, unit in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= step and size % step == 0:
            return f"{size // step} {unit}"
    return f"{size} B"
