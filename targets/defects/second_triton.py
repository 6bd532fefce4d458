"""Second set: sums of exponentials over few, very long rows, as Triton kernels."""

from typing import Any

import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def exp_sums_program_per_row(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program adds up exp(x) over a whole row of `columns` bf16 values."""
    row = tl.program_id(0).to(tl.int64)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        x = tl.load(x_ptr + row * columns + first + tl.arange(0, BLOCK))
        sums += tl.exp(x.to(tl.float32))
    tl.atomic_add(out_ptr + row, tl.sum(sums))


@triton.jit
def exp_sums_programs_per_row(x_ptr, out_ptr, columns, part, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each program does `part` of the columns of a row, and adds to the row's sum."""
    row = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1).to(tl.int64) * part
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, part, BLOCK):
        x = tl.load(x_ptr + row * columns + begin + first + tl.arange(0, BLOCK))
        sums += tl.exp(x.to(tl.float32))
    tl.atomic_add(out_ptr + row, tl.sum(sums))


def by_rows(x: Any, out: Any) -> None:
    """Add the rows' sums to `out` (FP32); `x` is (rows, columns), a multiple of BLOCK, in bf16."""
    rows, columns = x.shape
    exp_sums_program_per_row[(rows,)](x, out, columns, BLOCK=BLOCK, num_warps=8)


def by_parts(x: Any, out: Any, parts: int) -> None:
    """Do the same with `parts` programs a row; columns are a multiple of parts x BLOCK."""
    rows, columns = x.shape
    exp_sums_programs_per_row[(rows, parts)](
        x, out, columns, columns // parts, BLOCK=BLOCK, num_warps=8
    )
