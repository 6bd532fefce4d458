"""Multiplies by a pruned matrix, of whose blocks four in five are zero, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def multiply(
    x, weight, kept, counts, y, inner, columns,
    BLOCKS: tl.constexpr, M: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    strip = tl.program_id(0)
    row = tl.program_id(1) * M + tl.arange(0, M)
    column = strip * SIZE + tl.arange(0, SIZE)
    total = tl.zeros((M, SIZE), tl.float32)
    for step in range(tl.load(counts + strip)):
        k = tl.load(kept + strip * BLOCKS + step) * SIZE + tl.arange(0, SIZE)
        left = tl.load(x + row[:, None] * inner + k[None, :])
        right = tl.load(weight + k[:, None] * columns + column[None, :])
        total += tl.dot(left, right)
    tl.store(y + row[:, None] * columns + column[None, :], total.to(tl.bfloat16))


def prepare(device, repaired):
    rows, width, size = (4096, 4096, 64) if device == "cuda" else (64, 64, 16)
    blocks = width // size
    there = torch.rand(blocks, blocks) < 0.2  # [strip of columns, block of rows]
    there[:, 0] = True
    mask = there.t().repeat_interleave(size, 0).repeat_interleave(size, 1)
    weight = (torch.randn(width, width) * mask / width**0.5).bfloat16().to(device)
    wanted = there if repaired else torch.ones_like(there)
    kept = (~wanted).int().argsort(dim=1, stable=True).int().to(device)
    counts = wanted.sum(1).int().to(device)
    x = torch.randn(rows, width, device=device).bfloat16()
    return x, weight, kept, counts, torch.empty_like(x), size


def run(state, steps, repaired):
    x, weight, kept, counts, y, size = state
    rows, inner = x.shape
    tall = min(128, rows)
    for _ in range(steps):
        multiply[(len(counts), rows // tall)](
            x, weight, kept, counts, y, inner, weight.shape[1],
            BLOCKS=kept.shape[1], M=tall, SIZE=size, num_warps=4,
        )  # fmt: skip
    return y.float().square().mean()


main(prepare, run, steps=250)
