"""What the memory targets share: their CUDA C sources, kernels, buffers and sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nsight_prof.targets.harness import CudaModule, Kernel, Setup, Unsupported, is_cuda

Scalar = str | int
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
VECTOR_BYTES = 16
"""What a lane moves in an instruction: the widest load and store of global memory."""


def source(file: str, defines: tuple[tuple[str, Scalar], ...] = ()) -> str:
    """Return a CUDA C file that lies beside this module, after the macros that it expects.

    Args:
        file: name of the file.
        defines: macro names and what they stand for.
    """
    macros = "".join(f"#define {name} {value}\n" for name, value in defines)
    return macros + Path(__file__).with_name(file).read_text(encoding="utf-8")


def kernel(setup: Setup, file: str, name: str, **defines: Scalar) -> Kernel:
    """Compile a file with these macros for the current device and return one of its kernels.

    Raises:
        Unsupported: there is no compiler or driver to do so, or the device is no GPU.
    """
    if not is_cuda(setup.device):
        raise Unsupported(f"{name} is a kernel for a GPU")
    return CudaModule(source(file, tuple(defines.items()))).function(name)


def quoted(instruction: str) -> str:
    """Return an instruction as the text of a macro."""
    return f'"{instruction}"'


def filled(setup: Setup, size: int, copy: int = 0) -> Any:
    """Return a buffer of `size` bytes of the data that the case asks for.

    Args:
        setup: names the device, the kind of data and the seed.
        size: bytes, a multiple of 4.
        copy: number of the buffer, so that no two of a case hold the same random data.

    Returns:
        float32 tensor [size / 4].
    """
    import torch

    if setup.data == "zeros":
        return torch.zeros(size // 4, dtype=torch.float32, device=setup.device)
    generator = torch.Generator(device=setup.device).manual_seed(setup.seed + copy)
    return torch.randn(size // 4, dtype=torch.float32, device=setup.device, generator=generator)


def empty(setup: Setup, size: int) -> Any:
    """Return a buffer to be written to: float32 tensor [size / 4]."""
    import torch

    return torch.empty(size // 4, dtype=torch.float32, device=setup.device)


def zeroed(setup: Setup, size: int) -> Any:
    """Return a buffer of `size` bytes that are 0, whatever the data: int32 tensor [size / 4]."""
    import torch

    return torch.zeros(size // 4, dtype=torch.int32, device=setup.device)


def numbers(setup: Setup, values: Sequence[int]) -> Any:
    """Return whole numbers for a kernel that has too many arguments else: int32 tensor [n]."""
    import torch

    return torch.tensor(list(values), dtype=torch.int32, device=setup.device)


class Kept:
    """Buffers that the cases of one kind share: to fill gigabytes takes longer than to measure."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._buffers: dict[str, Any] = {}

    def get(self, of: tuple[object, ...], name: str, make: Callable[[], Any]) -> Any:
        """Return the buffer of this name, made at its first use.

        Args:
            of: all that the buffers depend on; those of another `of` are let go first.
            name: of the buffer, among those.
            make: returns a new one.
        """
        if of != self._of:
            self.release()
            self._of = of
        if name not in self._buffers:
            self._buffers[name] = make()
        return self._buffers[name]

    def release(self) -> None:
        """Let all of them go, and the allocator's hold on their memory."""
        import torch

        self._of = ()
        if self._buffers:
            self._buffers.clear()
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()


KEPT = Kept()
"""Of this process: at most one kind's buffers at a time, `--dram-gib` in all."""


def memory_bytes(device: Any) -> int:
    """Return the size of the device memory in bytes."""
    import torch

    return int(torch.cuda.get_device_properties(device).total_memory)


def require_bulk_copies(setup: Setup, shared: int) -> None:
    """Refuse devices without bulk copies between global and shared memory, or with too little.

    Raises:
        Unsupported: the compute capability is below 9.0, or a block gets less shared memory.
    """
    import torch

    properties = torch.cuda.get_device_properties(setup.device)
    if properties.major < 9:
        raise Unsupported(
            "bulk copies need compute capability 9.0 and the device has "
            f"{properties.major}.{properties.minor}"
        )
    require_shared(setup, shared)


def require_shared(setup: Setup, shared: int) -> None:
    """Refuse devices whose blocks get less shared memory than `shared` bytes.

    Raises:
        Unsupported: that is so.
    """
    import torch

    properties = torch.cuda.get_device_properties(setup.device)
    limit = int(getattr(properties, "shared_memory_per_block_optin", 227 * KIB))
    if shared > limit:
        raise Unsupported(f"a block needs {shared} bytes of shared memory and gets {limit}")


def size_name(size: float) -> str:
    """Return a size in bytes as part of a case's name: 16kib, 48mib, 4gib."""
    for unit, suffix in ((GIB, "gib"), (MIB, "mib"), (KIB, "kib")):
        if size >= unit:
            return f"{size / unit:.4g}{suffix}"
    return f"{size:.0f}b"
