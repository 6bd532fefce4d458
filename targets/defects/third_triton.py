"""Third set: batched products, a step of SGD with momentum, and a recurrence, as Triton kernels."""

from typing import Any

import triton
import triton.language as tl

TILE, STEP = 64, 32
"""Rows and columns of a tile of a product, and the part of k that it takes at a time."""
BLOCK, CHANNELS = 1024, 128


@triton.jit
def _product(a_ptr, b_ptr, c_ptr, n, TILE: tl.constexpr, STEP: tl.constexpr, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """One tile of C = A B in FP32 of one of the square matrices; `n` is a multiple of TILE."""
    base = tl.program_id(2).to(tl.int64) * n * n
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    across, down = tl.arange(0, STEP)[None, :], tl.arange(0, STEP)[:, None]
    sums = tl.zeros((TILE, TILE), dtype=tl.float32)
    for k in range(0, n, STEP):
        a = tl.load(a_ptr + base + rows * n + k + across)
        b = tl.load(b_ptr + base + (k + down) * n + columns)
        sums = tl.dot(a, b, sums, input_precision=KIND)
    tl.store(c_ptr + base + rows * n + columns, sums)


@triton.jit
def products_ieee(a_ptr, b_ptr, c_ptr, n, TILE: tl.constexpr, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Multiply in FP32: without Tensor Cores."""
    _product(a_ptr, b_ptr, c_ptr, n, TILE, STEP, "ieee")


@triton.jit
def products_tf32(a_ptr, b_ptr, c_ptr, n, TILE: tl.constexpr, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Multiply in TF32."""
    _product(a_ptr, b_ptr, c_ptr, n, TILE, STEP, "tf32")


@triton.jit
def momentum_in_one_kernel(p_ptr, v_ptr, g_ptr, momentum, rate, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """v = momentum v + g; p = p - rate v, for BLOCK values a program."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(v_ptr + at) * momentum + tl.load(g_ptr + at)
    tl.store(v_ptr + at, v)
    tl.store(p_ptr + at, tl.load(p_ptr + at) - rate * v)


@triton.jit
def recurrence_in_one_kernel(x_ptr, decay_ptr, y_ptr, steps, channels, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """y[t] = x[t] + decay y[t - 1] for BLOCK channels a program; x and y are (steps, channels)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    decay = tl.load(decay_ptr + at)
    state = tl.zeros((BLOCK,), dtype=tl.float32)
    for step in range(0, steps):
        state = tl.load(x_ptr + step * channels + at) + decay * state
        tl.store(y_ptr + step * channels + at, state)


def multiply(a: Any, b: Any, out: Any, tf32: bool) -> None:
    """Write the products of `a` and `b`, both (matrices, n, n) in FP32, to `out`."""
    count, n, _ = a.shape
    kernel = products_tf32 if tf32 else products_ieee
    kernel[(n // TILE, n // TILE, count)](a, b, out, n, TILE=TILE, STEP=STEP, num_warps=4)


def momentum_step(p: Any, v: Any, g: Any, momentum: float, rate: float) -> None:
    """Take a step of SGD with momentum; all FP32 of one size, a multiple of BLOCK."""
    momentum_in_one_kernel[(p.numel() // BLOCK,)](p, v, g, momentum, rate, BLOCK=BLOCK)


def recur(x: Any, decay: Any, y: Any) -> None:
    """Write the recurrence of `x` (steps, channels) with `decay` (channels) to `y`, in FP32."""
    steps, channels = x.shape
    recurrence_in_one_kernel[(channels // CHANNELS,)](
        x, decay, y, steps, channels, BLOCK=CHANNELS, num_warps=4
    )
