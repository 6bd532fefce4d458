"""Runs programs for a GPU on the CPU: CUDA C through g++, torch by asking for another device."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

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
    ) -> Callable[[], tuple[Any, ...]]:
        """Return the launch as a call that returns the kernel's arguments."""
        shape = (ctypes.c_uint * 6)(*_three(grid), *_three(block))
        whole = [_integer(value) for value in args if not isinstance(value, float)]
        integers = (ctypes.c_long * 6)(*whole)
        reals = (ctypes.c_double * 2)(*(value for value in args if isinstance(value, float)))
        kept = tuple(args)

        def run() -> tuple[Any, ...]:
            self._launch(self._address, shape, integers, reals)
            return kept

        return run


def compiled(source: str, folder: Path) -> ctypes.CDLL:
    """Compile CUDA C for the CPU; dynamic shared memory is 4096 words."""
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    folder.mkdir(exist_ok=True)
    text = re.sub(r"extern __shared__ (\w+ \w+)\[\]", r"static \1[4096]", source)
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


class OnCpu(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
    """Makes on the CPU what a program asks for on the GPU."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        here = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        if getattr(function, "__name__", "") == "pin_memory":
            return args[0]
        return function(*map(_on_cpu, args), **here)


def _on_cpu(value: Any) -> Any:
    return "cpu" if isinstance(value, str) and value == "cuda" else value
