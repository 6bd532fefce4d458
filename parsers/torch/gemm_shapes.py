"""Sizes of matrix products, from the shapes of an operator's inputs.

A product of M x K by K x N is 2MNK FLOPs: a multiplication and an addition for each. It must move
at least its two inputs and its output, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

DTYPES = {
    "c10::BFloat16": "bf16",
    "c10::Half": "fp16",
    "float": "fp32",
    "double": "fp64",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
    "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short int": "int16",
    "int": "int32",
    "long int": "int64",
    "long": "int64",
}
"""Types as Kineto writes them -> as kernels and roofs are named."""

SIZES = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
"""Bytes of an input value; products of one-byte inputs give two-byte values (vLLM, cuBLASLt)."""
OUTPUT_OF_ONE_BYTE = 2


@dataclass(frozen=True)
class Gemm:
    """A product of M x K by K x N, `batch` of them in one call; `dtype` of the inputs."""

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str = ""

    @property
    def flops(self) -> float:
        """FLOPs of a call: 2MNK for each of the batch."""
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> float | None:
        """Bytes that a call must move: both inputs and the output, once; None for other types."""
        size = SIZES.get(self.dtype)
        if size is None:
            return None
        inputs = (self.m * self.k + self.k * self.n) * size
        out = self.m * self.n * (OUTPUT_OF_ONE_BYTE if size == 1 else size)
        return float(self.batch * (inputs + out))


Shape = Sequence[int]


def _product(a: Shape, b: Shape) -> Gemm | None:
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        return None
    return Gemm(a[0], b[1], a[1])


def _batched(a: Shape, b: Shape) -> Gemm | None:
    if len(a) != 3 or len(b) != 3 or a[0] != b[0] or a[2] != b[1]:
        return None
    return Gemm(a[1], b[2], a[2], a[0])


def _vector(a: Shape, x: Shape) -> Gemm | None:
    if len(a) != 2 or len(x) != 1 or a[1] != x[0]:
        return None
    return Gemm(a[0], 1, a[1])


def _linear(x: Shape, weight: Shape) -> Gemm | None:
    if not x or len(weight) != 2 or x[-1] != weight[1]:
        return None
    return Gemm(prod(x[:-1]), weight[0], weight[1])


def _matmul(a: Shape, b: Shape) -> Gemm | None:
    """torch.matmul: vectors get a dimension, leading dimensions broadcast."""
    if not a or not b:
        return None
    first = [1, *a] if len(a) == 1 else list(a)
    right = [*b, 1] if len(b) == 1 else list(b)
    if first[-1] != right[-2]:
        return None
    if len(right) == 2:  # torch folds the leading dimensions into M
        return Gemm(prod(first[:-1]), right[1], right[0])
    batch = _broadcast(first[:-2], right[:-2])
    return None if batch is None else Gemm(first[-2], right[-1], right[-2], prod(batch))


def _broadcast(first: Shape, second: Shape) -> list[int] | None:
    length = max(len(first), len(second))
    pairs = zip(
        [1] * (length - len(first)) + list(first),
        [1] * (length - len(second)) + list(second),
        strict=True,
    )
    found = []
    for a, b in pairs:
        if a != b and 1 not in (a, b):
            return None
        found.append(b if a == 1 else a)
    return found


_Rule = Callable[[Shape, Shape], Gemm | None]
_RULES: dict[str, tuple[int, int, _Rule]] = {
    "aten::mm": (0, 1, _product),
    "aten::addmm": (1, 2, _product),
    "aten::addmm_": (1, 2, _product),
    "aten::_addmm_activation": (1, 2, _product),
    "aten::_scaled_mm": (0, 1, _product),
    "aten::_int_mm": (0, 1, _product),
    "aten::bmm": (0, 1, _batched),
    "aten::baddbmm": (1, 2, _batched),
    "aten::baddbmm_": (1, 2, _batched),
    "aten::mv": (0, 1, _vector),
    "aten::addmv": (1, 2, _vector),
    "aten::addmv_": (1, 2, _vector),
    "aten::linear": (0, 1, _linear),
    "aten::matmul": (0, 1, _matmul),
    "_C::cutlass_scaled_mm": (1, 2, _product),  # vLLM: out, a, b, scales, bias
}
"""Operator -> places of its two factors among the inputs, and how their shapes multiply."""


def gemm_of(operator: str, dims: Any, types: Any) -> Gemm | None:
    """Return the product that an operator computes; None for others and for unknown shapes.

    `dims` and `types` are "Input Dims" and "Input type" of the operator's event.
    """
    rule = _RULES.get(operator)
    if rule is None or not isinstance(dims, list) or len(dims) <= rule[1]:
        return None
    first, second = dims[rule[0]], dims[rule[1]]
    if not (_is_shape(first) and _is_shape(second)):
        return None
    found = rule[2](first, second)
    if found is None or 0 in (found.m, found.n, found.k, found.batch):
        return None
    dtype = types[rule[0]] if isinstance(types, list) and len(types) > rule[0] else ""
    return Gemm(found.m, found.n, found.k, found.batch, DTYPES.get(str(dtype), ""))


def _is_shape(dims: Any) -> bool:
    return isinstance(dims, list) and bool(dims) and all(isinstance(size, int) for size in dims)
