"""Own CUDA C kernels: compiled by NVRTC and launched on torch's stream through cuda.bindings."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from nsight_prof.targets.harness.api import Unsupported

Dim = int | tuple[int, int, int]


class CudaError(RuntimeError):
    """A call of the CUDA driver failed; the text names the call and CUDA's own reason."""


@dataclass(frozen=True)
class CInt32:
    """A kernel argument declared `int`."""

    value: int


@dataclass(frozen=True)
class CFloat:
    """A kernel argument declared `float`."""

    value: float


@dataclass(frozen=True)
class Launch:
    """A launch with its arguments packed; `keep` holds what the packed pointers point to."""

    launch: Callable[..., Any]
    shape: tuple[Any, ...]
    packed: int
    stream: Callable[[], int]
    keep: tuple[Any, ...]

    def __call__(self) -> None:
        """Launch on torch's current stream.

        Raises:
            CudaError: the driver refused the launch.
        """
        (code,) = self.launch(*self.shape, self.stream(), self.packed, 0)
        if int(code):
            _check("cuLaunchKernel", (code,))

    def bare(self) -> Callable[[], Any]:
        """Return the driver's call alone, on the stream that is current now; unchecked."""
        return partial(self.launch, *self.shape, self.stream(), self.packed, 0)


class Kernel:
    """A kernel of a `CudaModule`; keeps its module loaded."""

    def __init__(self, module: CudaModule, name: str) -> None:
        self.name = name
        self._module = module
        self._driver = module.driver
        self._function = _check(
            "cuModuleGetFunction", self._driver.cuModuleGetFunction(module.handle, name.encode())
        )

    def __call__(self, grid: Dim, block: Dim, args: Sequence[Any], shared: int = 0) -> None:
        """Launch on torch's current stream.

        Args:
            grid: blocks, or blocks in x, y and z.
            block: threads of a block, or threads in x, y and z.
            args: in the kernel's order: a torch tensor (its address), a Python int or bool (a
                `long long`), CInt32 (`int`), CFloat (`float`), a Python float (`double`).
            shared: dynamic shared memory of a block in bytes; above 48 KiB after `allow_shared`.

        Raises:
            CudaError: the driver refused the launch.
        """
        self.bind(grid, block, args, shared)()

    def bind(self, grid: Dim, block: Dim, args: Sequence[Any], shared: int = 0) -> Launch:
        """Return the launch as a call without arguments, which costs the host less."""
        holders = tuple(_pack(value) for value in args)
        pointers = (ctypes.c_void_p * max(len(holders), 1))(
            *(ctypes.addressof(holder) for holder in holders)
        )
        return Launch(
            self._driver.cuLaunchKernel,
            (self._function, *_three(grid), *_three(block), shared),
            ctypes.addressof(pointers),
            current_stream,
            (self, pointers, holders, tuple(args)),
        )

    def allow_shared(self, size: int) -> None:
        """Allow `size` bytes of dynamic shared memory a block (more than 48 KiB needs it).

        Raises:
            CudaError: more than the device has.
        """
        attribute = self._driver.CUfunction_attribute
        name = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _check("cuFuncSetAttribute", self._driver.cuFuncSetAttribute(self._function, name, size))

    def prefer_shared(self, percent: int) -> None:
        """Ask for this share of the unified L1 as shared memory; 0 leaves most of it to L1."""
        attribute = self._driver.CUfunction_attribute
        name = attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        _check("cuFuncSetAttribute", self._driver.cuFuncSetAttribute(self._function, name, percent))

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return self._attribute("CU_FUNC_ATTRIBUTE_NUM_REGS")

    def _attribute(self, name: str) -> int:
        attribute = getattr(self._driver.CUfunction_attribute, name)
        return int(
            _check("cuFuncGetAttribute", self._driver.cuFuncGetAttribute(attribute, self._function))
        )

    def occupancy(self, block: int, shared: int = 0) -> int:
        """Return how many blocks of `block` threads are resident on one SM at a time."""
        return int(
            _check(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                self._driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    self._function, block, shared
                ),
            )
        )


class CudaModule:
    """CUDA C source compiled for the current device and loaded into torch's context.

    NVRTC brings no CUDA headers: the source can use built-in functions and inline PTX, not
    #include. Kernels are declared `extern "C" __global__`. The same source is compiled once.

    Args:
        source: CUDA C.
        options: more of NVRTC's options; an architecture among them replaces the device's own.

    Raises:
        Unsupported: cuda.bindings, NVRTC or the driver is missing.
        CudaError: the source does not compile (the text is the compiler's), or does not load.
    """

    def __init__(self, source: str, options: Sequence[str] = ()) -> None:
        import torch

        if not torch.cuda.is_available():
            raise Unsupported("own CUDA kernels need a CUDA device")
        self.driver = _bindings()[0]
        torch.empty(1, device="cuda")  # makes the primary context and has it current
        self.cubin = compile_cubin(source, (*options, *_architecture(options)))
        self.handle = _load(self.cubin)

    def function(self, name: str) -> Kernel:
        """Return a kernel by its name.

        Raises:
            CudaError: there is none; it must be declared `extern "C" __global__`.
        """
        return Kernel(self, name)


@lru_cache(maxsize=256)
def compile_cubin(source: str, options: tuple[str, ...]) -> bytes:
    """Compile CUDA C to machine code; needs NVRTC, but no GPU.

    Raises:
        Unsupported: NVRTC is missing.
        CudaError: with the compiler's messages.
    """
    nvrtc = _bindings()[1]
    try:
        program = _check(
            "nvrtcCreateProgram",
            nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []),
        )
    except CudaError:
        raise
    except RuntimeError as error:  # what the bindings raise where the library is not found
        raise Unsupported(f"NVRTC cannot be loaded: {error}") from error
    words = [option.encode() for option in options]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(words), words)
    if int(code):
        size = _check("nvrtcGetProgramLogSize", nvrtc.nvrtcGetProgramLogSize(program))
        log = b" " * size
        _check("nvrtcGetProgramLog", nvrtc.nvrtcGetProgramLog(program, log))
        raise CudaError(f"NVRTC: {log.decode(errors='replace').strip(chr(0)).strip()}")
    size = _check("nvrtcGetCUBINSize", nvrtc.nvrtcGetCUBINSize(program))
    cubin: bytes = b" " * size
    _check("nvrtcGetCUBIN", nvrtc.nvrtcGetCUBIN(program, cubin))
    nvrtc.nvrtcDestroyProgram(program)
    return cubin


@lru_cache(maxsize=256)
def _load(cubin: bytes) -> Any:
    """Load machine code once; the handle is never unloaded, because graphs may still use it."""
    return _check("cuModuleLoadData", _bindings()[0].cuModuleLoadData(cubin))


@lru_cache(maxsize=1)
def _bindings() -> tuple[Any, Any]:
    try:
        from cuda.bindings import driver, nvrtc
    except ImportError as error:
        raise Unsupported(f"own CUDA kernels need the package cuda-bindings ({error})") from error
    return driver, nvrtc


def _architecture(options: Sequence[str]) -> list[str]:
    """Return the option for the device's own instructions: sm_90a has wgmma, sm_90 has not."""
    if any(option.startswith(("--gpu-architecture", "-arch")) for option in options):
        return []
    import torch

    major, minor = torch.cuda.get_device_capability()
    return [f"--gpu-architecture=sm_{major}{minor}{'a' if major >= 9 else ''}"]


def current_stream() -> int:
    """Return the handle of torch's current stream, a capturing one too."""
    import torch

    return int(torch._C._cuda_getCurrentRawStream(torch.cuda.current_device()))


def _three(size: Dim) -> tuple[int, int, int]:
    return (size, 1, 1) if isinstance(size, int) else size


def _pack(value: Any) -> Any:
    """Return an argument as the C value whose address the driver copies it from."""
    if isinstance(value, CInt32):
        return ctypes.c_int32(value.value)
    if isinstance(value, CFloat):
        return ctypes.c_float(value.value)
    if isinstance(value, int):
        return ctypes.c_int64(value)
    if isinstance(value, float):
        return ctypes.c_double(value)
    if hasattr(value, "data_ptr"):
        return ctypes.c_void_p(value.data_ptr())
    raise TypeError(f"a kernel argument cannot be a {type(value).__name__}")


def _check(call: str, result: tuple[Any, ...]) -> Any:
    """Return what a call of the bindings gave, without its error code.

    Raises:
        CudaError: the code is not 0.
    """
    code, *values = result
    if int(code):
        raise CudaError(f"{call}: {getattr(code, 'name', code)}")
    return values[0] if values else None
