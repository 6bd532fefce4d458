"""A linear layer in Triton with bias and activation in the same kernel."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def linear(x, w, bias, y, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(1) * M + tl.arange(0, M)
    columns = tl.program_id(0) * N + tl.arange(0, N)
    total = tl.zeros([M, N], tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        left = tl.load(x + rows[:, None] * k + inner[None, :])
        right = tl.load(w + inner[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total)
    total = tl.maximum(total + tl.load(bias + columns)[None, :], 0.0)
    tl.store(y + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16))


def prepare(device, repaired):
    m, n, k = (8192, 4096, 1024) if device == "cuda" else (128, 128, 64)
    x = torch.randn(m, k, device=device).to(torch.bfloat16)
    w = (torch.randn(k, n, device=device) / k**0.5).to(torch.bfloat16)
    y = torch.empty(m, n, device=device, dtype=torch.bfloat16)
    return x, w, torch.randn(n, device=device), y


def run(state, steps, repaired):
    x, w, bias, y = state
    (m, k), n = x.shape, len(bias)
    side, warps = (128, 8) if repaired else (16, 1)
    for _ in range(steps):
        grid = (n // side, m // side)
        linear[grid](x, w, bias, y, n, k, M=side, N=side, K=64, num_warps=warps, num_stages=3)
    return y.float().mean()


main(prepare, run, steps=20)
