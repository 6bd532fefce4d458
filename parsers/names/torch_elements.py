"""How many elements a launch of PyTorch's elementwise kernels works on, by its name and grid."""

from __future__ import annotations

import math
import re

OF_TORCH = re.compile(
    r"\b(vectorized_|unrolled_)?elementwise_kernel<(?:(?:\(int\))?\d+, (?:\(int\))?(\d+), )?"
)
"""Kernels of elementwise operators: how they go over memory, and elements for a thread."""
STRIDED = "strided"


def torch_elements(name: str, grid: str, block: str) -> tuple[str, set[int]]:
    """Return how a kernel of PyTorch's goes over memory, and how many elements its launch may work
    on; none of other kernels.

    A strided kernel has their number for a thread in its name; one with a cast takes 4, a
    vectorized one 4, 8 or 16, by its types (PyTorch: ATen/native/cuda/CUDALoops.cuh).
    """
    if not (grid and block) or not (kind := OF_TORCH.search(name)):
        return "", set()
    numbers = {"": [int(kind[2] or 0)], "unrolled_": [4], "vectorized_": [4, 8, 16]}[kind[1] or ""]
    threads = math.prod(map(int, f"{grid}x{block}".split("x")))
    return kind[1] or STRIDED, {threads * number for number in numbers}
