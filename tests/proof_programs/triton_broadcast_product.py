"""Multiplies many pairs of small matrices, as attention over windows of a picture needs it."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def multiply(a, b, c, SIZE: tl.constexpr, M: tl.constexpr, K: tl.constexpr, DOT: tl.constexpr):
    first = tl.program_id(1).to(tl.int64) * SIZE * SIZE
    row = tl.program_id(0) // (SIZE // M) * M + tl.arange(0, M)
    column = tl.program_id(0) % (SIZE // M) * M + tl.arange(0, M)
    inner = tl.arange(0, K)
    total = tl.zeros((M, M), tl.float32)
    for k in range(0, SIZE, K):
        left = tl.load(a + first + row[:, None] * SIZE + k + inner[None, :])
        right = tl.load(b + first + (k + inner)[:, None] * SIZE + column[None, :])
        if DOT:
            total += tl.dot(left, right)
        else:
            both = left[:, :, None].to(tl.float32) * right[None, :, :].to(tl.float32)
            total += tl.sum(both, axis=1)
    tl.store(c + first + row[:, None] * SIZE + column[None, :], total.to(tl.bfloat16))


def prepare(device, repaired):
    pairs, size = (2048, 128) if device == "cuda" else (2, 32)
    a, b = (torch.randn(pairs, size, size, device=device).bfloat16() for _ in range(2))
    return a, b, torch.empty_like(a)


def run(state, steps, repaired):
    a, b, c = state
    pairs, size, _ = a.shape
    grid = ((size // 32) ** 2, pairs)
    for _ in range(steps):
        multiply[grid](a, b, c, SIZE=size, M=32, K=16, DOT=repaired, num_warps=4)
    return c.float().square().mean() / size


main(prepare, run, steps=100)
