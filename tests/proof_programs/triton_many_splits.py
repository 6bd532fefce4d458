"""Projects a few tokens with a wide layer in Triton; programs share the long sum of a tile (split K)."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def partial(a, b, parts, m, n, k, length, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.program_id(1) * M + tl.arange(0, M)
    j = tl.program_id(0) * N + tl.arange(0, N)
    split = tl.program_id(2)
    at = split * length + tl.arange(0, K)
    left = a + i[:, None] * k + at[None, :]
    right = b + at[:, None].to(tl.int64) * n + j[None, :]
    total = tl.zeros((M, N), tl.float32)
    for _ in range(0, length, K):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += K
        right += K * n
    tl.store(parts + (split.to(tl.int64) * m + i[:, None]) * n + j[None, :], total)


@triton.jit
def join(parts, c, number, splits, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for split in range(splits):
        total += tl.load(parts + split * number + at)
    tl.store(c + at, total.to(tl.bfloat16))


def prepare(device, repaired):
    m, n, k = (256, 8192, 8192) if device == "cuda" else (64, 128, 512)
    splits = (2 if repaired else 64) if device == "cuda" else (1 if repaired else 4)
    a = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    b = torch.randn(k, n, device=device, dtype=torch.bfloat16)
    parts = torch.empty(splits, m, n, device=device)
    return a, b, parts, torch.empty(m, n, device=device, dtype=torch.bfloat16)


def run(state, steps, repaired):
    a, b, parts, c = state
    splits, m, n = parts.shape
    k = a.shape[1]
    grid = triton.cdiv(n, 128), triton.cdiv(m, 64), splits
    for _ in range(steps):
        partial[grid](
            a, b, parts, m, n, k, k // splits, M=64, N=128, K=64, num_warps=4, num_stages=3
        )
        join[(m * n // 1024,)](parts, c, m * n, splits, BLOCK=1024, num_warps=4)
    return c.float().square().mean()


main(prepare, run, steps=1000)
