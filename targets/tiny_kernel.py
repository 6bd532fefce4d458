"""Launches one tiny kernel through the CUDA driver alone: may this process use the counters?

No packages needed. Exit code 0: the kernel ran; 1: what failed is on stderr.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

# The oldest PTX that a driver of CUDA 11 to 13 compiles for every GPU it supports.
PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry prof_tiny_kernel() { ret; }
\0"""


def main() -> int:
    """Compile the kernel for the first GPU, launch it once and wait for it."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        print(f"no CUDA driver: {error}", file=sys.stderr)
        return 1
    device, context = ctypes.c_int(), ctypes.c_void_p()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    one, none = ctypes.c_uint(1), ctypes.c_void_p()
    calls: list[tuple[Any, ...]] = [
        ("cuInit", ctypes.c_uint(0)),
        ("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0)),
        ("cuDevicePrimaryCtxRetain", ctypes.byref(context), device),
        ("cuCtxSetCurrent", context),
        ("cuModuleLoadData", ctypes.byref(module), PTX),
        ("cuModuleGetFunction", ctypes.byref(function), module, b"prof_tiny_kernel"),
        ("cuLaunchKernel", function, *[one] * 6, ctypes.c_uint(0), none, none, none),
        ("cuCtxSynchronize",),
    ]
    for name, *arguments in calls:
        code = getattr(cuda, name)(*arguments)
        if code != 0:
            print(f"{name} failed with CUDA error {code}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
