"""Matrix products of all dtypes, C = A B with A (m, k) and B (k, n), through torch's libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nsight_prof.targets.harness.api import Call, Setup, Unsupported, Work
from nsight_prof.targets.harness.device import is_cuda

SIZES = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4, "fp64": 8, "fp8": 1, "int8": 1}
"""Bytes of an element of A and B."""
OUTPUT_SIZES = {"fp8": 2, "int8": 4}
"""Bytes of an element of C where it is another type: bf16 of fp8, int32 of int8."""
DTYPES = tuple(SIZES)
E4M3_MAX = 448.0
INT8_SCALE, INT8_MAX = 32.0, 127
"""int8 data are 32 x N(0, 1), rounded and clamped: all bits are used, few values are clamped."""


@dataclass(frozen=True)
class Matmul:
    """A product of one shape and dtype.

    Attributes:
        transposed: B is stored as (n, k) and read through its transpose, like a Linear's weight.
            fp8 and int8 always are: their kernels want B column-major.
    """

    dtype: str
    m: int
    n: int
    k: int
    transposed: bool = False

    @property
    def flops(self) -> float:
        """2MNK: a multiplication and an addition for each product; for int8 operations."""
        return 2.0 * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Bytes of A, B and C once: what no cache can save."""
        size = SIZES[self.dtype]
        output = OUTPUT_SIZES.get(self.dtype, size)
        return float((self.m * self.k + self.k * self.n) * size + self.m * self.n * output)

    @property
    def work(self) -> Work:
        """Work of one call."""
        return Work(flops=self.flops, bytes=self.bytes)

    @property
    def footprint_bytes(self) -> float:
        """Bytes that a call touches."""
        return self.bytes

    def prepare(self, setup: Setup) -> Sequence[Call]:
        """Return a call for each copy: operands of its own, and an output that is made once.

        Raises:
            Unsupported: torch has no such product for this dtype, shape or device.
        """
        import torch

        refuse(self, is_cuda(setup.device))
        torch.backends.cuda.matmul.allow_tf32 = self.dtype == "tf32"
        return [self._call(torch, setup) for _ in range(setup.copies)]

    def _call(self, torch: Any, setup: Setup) -> Call:
        a = operand(self.dtype, (self.m, self.k), setup)
        if self.transposed or self.dtype in OUTPUT_SIZES:
            b = operand(self.dtype, (self.n, self.k), setup).t()
        else:
            b = operand(self.dtype, (self.k, self.n), setup)
        out = torch.empty(
            (self.m, self.n), dtype=output_dtype(torch, self.dtype), device=setup.device
        )
        if self.dtype == "int8":
            return partial(torch._int_mm, a, b, out=out)
        if self.dtype == "fp8":
            one = torch.ones((), dtype=torch.float32, device=setup.device)
            scaled = partial(torch._scaled_mm, a, b, scale_a=one, scale_b=one)
            # Accumulation without promotion, as inference engines ask for.
            return partial(scaled, out_dtype=torch.bfloat16, use_fast_accum=True, out=out)
        return partial(torch.mm, a, b, out=out)


def make_matmul(dtype: str, m: int, n: int, k: int, transposed: bool = False) -> Matmul:
    """Return the product of a dtype (bf16 fp16 tf32 fp32 fp64 fp8 int8) and shape.

    Raises:
        ValueError: an unknown dtype, or a size below 1.
    """
    if dtype not in SIZES:
        raise ValueError(f"{dtype!r} is none of the dtypes {', '.join(DTYPES)}")
    if min(m, n, k) < 1:
        raise ValueError(f"a product of {m} x {n} x {k} has no elements")
    return Matmul(dtype, m, n, k, transposed)


def refuse(product: Matmul, cuda: bool) -> None:
    """Refuse the shapes that torch's own checks refuse, with a reason that a reader understands.

    Raises:
        Unsupported: the reason.
    """
    if not cuda:
        return
    if product.dtype == "fp8" and (product.k % 16 or product.n % 16):
        raise Unsupported("torch._scaled_mm of fp8 needs n and k to be multiples of 16")
    if product.dtype == "int8" and (product.m <= 16 or product.k % 8 or product.n % 8):
        raise Unsupported("torch._int_mm needs m above 16, and n and k to be multiples of 8")


def storage_dtype(torch: Any, dtype: str) -> Any:
    """Return torch's dtype of A and B."""
    return {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "tf32": torch.float32,
        "fp32": torch.float32,
        "fp64": torch.float64,
        "fp8": torch.float8_e4m3fn,
        "int8": torch.int8,
    }[dtype]


def output_dtype(torch: Any, dtype: str) -> Any:
    """Return torch's dtype of C."""
    other = {"fp8": torch.bfloat16, "int8": torch.int32}
    return other.get(dtype) or storage_dtype(torch, dtype)


def operand(dtype: str, shape: tuple[int, ...], setup: Setup) -> Any:
    """Return a tensor of N(0, 1), or of zeros, in a dtype; scaled for int8, clamped for fp8."""
    import torch

    kind = storage_dtype(torch, dtype)
    if setup.data == "zeros":
        return torch.zeros(shape, dtype=kind, device=setup.device)
    if dtype not in OUTPUT_SIZES:
        return torch.randn(shape, dtype=kind, device=setup.device)
    # Half the memory of float32 while it is made; both targets have fewer digits than fp16.
    values = torch.randn(shape, dtype=torch.float16, device=setup.device)
    if dtype == "fp8":
        return values.clamp_(-E4M3_MAX, E4M3_MAX).to(kind)
    return values.mul_(INT8_SCALE).round_().clamp_(-INT8_MAX, INT8_MAX).to(kind)
