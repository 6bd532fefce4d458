"""Multiplies bfloat16 matrices in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def multiply(a, b, c, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(1) * M + tl.arange(0, M)
    columns = tl.program_id(0) * N + tl.arange(0, N)
    total = tl.zeros([M, N], tl.float32)
    for start in range(0, n, K):
        k = start + tl.arange(0, K)
        left = tl.load(a + rows[:, None] * n + k[None, :])
        right = tl.load(b + k[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16))


def prepare(device, repaired):
    n = 4096 if device == "cuda" else 128
    a, b = (torch.randn(2, n, n, device=device) / n**0.5).to(torch.bfloat16)
    return a, b, torch.empty_like(a)


def run(state, steps, repaired):
    a, b, c = state
    n, stages = len(a), 4 if repaired else 1
    for _ in range(steps):
        multiply[(n // 128, n // 128)](
            a, b, c, n, M=128, N=128, K=64, num_warps=8, num_stages=stages
        )
    return c.float().abs().mean()


main(prepare, run, steps=100)
