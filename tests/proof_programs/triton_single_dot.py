"""A bfloat16 matrix product in Triton that multiplies in single precision."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def product(a, b, c, n, BF16: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros([M, N], tl.float32)
    for start in range(0, n, K):
        k = start + tl.arange(0, K)
        left = tl.load(a + rows[:, None] * n + k[None, :])
        right = tl.load(b + k[:, None] * n + columns[None, :])
        if BF16:
            total += tl.dot(left, right)
        else:
            total += tl.dot(left.to(tl.float32), right.to(tl.float32), input_precision="ieee")
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16))


def prepare(device, repaired):
    a, b = (torch.randn(2, 2048, 2048, device=device) / 45).to(torch.bfloat16)
    return a, b, torch.empty_like(a)


def run(state, steps, repaired):
    a, b, c = state
    for _ in range(steps):
        product[(2048 // 64, 2048 // 64)](a, b, c, 2048, BF16=repaired, M=64, N=64, K=32)
    return c.float().abs().mean()


main(prepare, run, steps=60)
