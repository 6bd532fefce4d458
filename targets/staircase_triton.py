"""A matrix product whose tile is fixed, in Triton: the control of the GEMM staircase.

cuBLAS chooses another tile for another size, so its steps are those of several staircases. Here
one CTA computes one tile, whatever the size, and the hardware gives tiles to SMs as they come
free: the plainest case of wave quantization.
"""

from typing import Any

import triton
import triton.language as tl


# One binary for every M: without this, Triton compiles again for M = 1 and for multiples of 16.
@triton.jit(do_not_specialize=["m"])
def pinned_tile_matmul(  # type: ignore[no-untyped-def]  # Triton compiles annotations too
    a_ptr,
    w_ptr,
    c_ptr,
    m,
    N: tl.constexpr,
    K: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """C (m, N) = A (m, K) W (N, K)^T, all row-major; TILE_N divides N and TILE_K divides K."""
    tile = tl.program_id(0)
    tiles_m = tl.cdiv(m, TILE_M)
    # Neighbours share a block of W, so that DRAM delivers W once; A stays in L2.
    rows = (tile % tiles_m) * TILE_M + tl.arange(0, TILE_M)
    columns = (tile // tiles_m) * TILE_N + tl.arange(0, TILE_N)
    depth = tl.arange(0, TILE_K)
    # Rows past the end are read from the start and not written: no mask in the inner loop.
    a = a_ptr + (rows % m)[:, None] * K + depth[None, :]
    w = w_ptr + columns[None, :] * K + depth[:, None]
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for _ in range(0, K, TILE_K):
        total = tl.dot(tl.load(a), tl.load(w), total)
        a += TILE_K
        w += TILE_K
    c = c_ptr + rows[:, None] * N + columns[None, :]
    tl.store(c, total.to(c_ptr.dtype.element_ty), mask=(rows < m)[:, None])


def matmul(
    a: Any, w: Any, c: Any, tile: tuple[int, int, int], stages: int = 4, warps: int = 8
) -> None:
    """Write A W^T to `c` in tiles of `tile` = (M, N, K), one CTA a tile.

    Args:
        a: (m, k), bf16 or float8_e4m3fn, contiguous as all three are.
        w: (n, k), of the same dtype; n and k are multiples of the tile.
        c: (m, n), bf16.
        tile: rows, columns and depth that a CTA keeps at a time.
        stages: depth of the copy pipeline; with `tile` it decides how many CTAs fit on an SM.
        warps: of a CTA.

    Raises:
        ValueError: n or k is no multiple of the tile.
    """
    (m, k), n = a.shape, w.shape[0]
    if n % tile[1] or k % tile[2]:
        raise ValueError(f"n = {n} and k = {k} are not multiples of the tile {tile}")
    grid = (triton.cdiv(m, tile[0]) * (n // tile[1]),)
    pinned_tile_matmul[grid](a, w, c, m, n, k, *tile, num_warps=warps, num_stages=stages)
