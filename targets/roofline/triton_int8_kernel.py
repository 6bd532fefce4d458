"""The int8 product itself; imported only where Triton is there."""

from typing import Any

import triton
import triton.language as tl

GROUP = 8
"""Rows of tiles that are worked on side by side, so that their columns of B stay in L2."""


@triton.jit
def int8_matmul(  # type: ignore[no-untyped-def]  # Triton compiles annotations too
    a_ptr,
    b_ptr,
    c_ptr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    GROUPED: tl.constexpr,
):
    """C (M, N) = A (M, K) B (N, K)^T, all row-major; the tile divides all sizes."""
    tile = tl.program_id(0)
    in_group = GROUPED * (N // TILE_N)
    first = tile // in_group * GROUPED
    height = min(M // TILE_M - first, GROUPED)
    row, column = first + tile % in_group % height, tile % in_group // height
    rows = row * TILE_M + tl.arange(0, TILE_M)
    columns = column * TILE_N + tl.arange(0, TILE_N)
    depth = tl.arange(0, TILE_K)
    a = a_ptr + rows[:, None] * K + depth[None, :]
    b = b_ptr + columns[None, :] * K + depth[:, None]
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.int32)
    for _ in range(0, K, TILE_K):
        total = tl.dot(tl.load(a), tl.load(b), total, out_dtype=tl.int32)
        a += TILE_K
        b += TILE_K
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


def matmul(a: Any, b: Any, c: Any, tiling: Any) -> None:
    """Write A B^T to `c`: a (m, k) and b (n, k) int8, c (m, n) int32, all contiguous.

    Raises:
        ValueError: a size is no multiple of the tile.
    """
    (m, k), n = a.shape, b.shape[0]
    if m % tiling.rows or n % tiling.columns or k % tiling.depth:
        raise ValueError(f"{m} x {n} x {k} is no multiple of the tile {tiling.name}")
    grid = ((m // tiling.rows) * (n // tiling.columns),)
    shape = (tiling.rows, tiling.columns, tiling.depth)
    int8_matmul[grid](
        a, b, c, m, n, k, *shape, GROUP, num_warps=tiling.warps, num_stages=tiling.stages
    )
