"""Runs CUDA C kernels on the CPU, thread by thread: whether they compute what they should."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HEADER = Path(__file__).with_name("cuda_on_cpu.h")


class KernelOnCpu:
    """Stands in for targets.harness.Kernel: arguments are tensors of the CPU, ints, floats."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self._launch = library.launch
        self._address = ctypes.cast(getattr(library, name), ctypes.c_void_p)

    def allow_shared(self, size: int) -> None:
        """Do nothing: the arrays are as large as `compiled` makes them."""

    def bind(
        self, grid: Any, block: Any, args: Sequence[Any], shared: int = 0
    ) -> Callable[[], None]:
        """Return the launch as a call without arguments."""
        shape = (ctypes.c_uint * 6)(*_three(grid), *_three(block))
        whole = [_integer(value) for value in args if not isinstance(value, float)]
        integers = (ctypes.c_long * 6)(*whole)
        reals = (ctypes.c_double * 2)(*(value for value in args if isinstance(value, float)))
        kept = tuple(args)

        def run() -> None:
            assert kept, "a kernel has arguments"
            self._launch(self._address, shape, integers, reals)

        return run


def compiled(source: str, folder: Path) -> ctypes.CDLL:
    """Compile CUDA C for the CPU; dynamic shared memory is 4096 words."""
    dynamic = "extern __shared__ u32 bins[]"
    folder.mkdir(exist_ok=True)
    text = source.replace(dynamic, "static u32 bins[4096]")
    (folder / "kernels.cpp").write_text(text, encoding="utf-8")
    library = folder / "kernels.so"
    command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-ffp-contract=off"]
    subprocess.run(
        [*command, "-include", str(HEADER), str(folder / "kernels.cpp"), "-o", str(library)],
        check=True,
    )
    return ctypes.CDLL(str(library))


def _three(size: Any) -> tuple[int, int, int]:
    return (size, 1, 1) if isinstance(size, int) else size


def _integer(value: Any) -> int:
    return int(value.data_ptr()) if hasattr(value, "data_ptr") else int(value)
