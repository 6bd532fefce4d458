"""The layers of a language model for one word at a time: products of large matrices with a vector, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def product(w, x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        weights = tl.load(w + row.to(tl.int64) * columns + start + at)
        total += weights.to(tl.float32) * tl.load(x + start + at).to(tl.float32)
    tl.store(y + row, tl.sum(total, axis=0))


@triton.jit
def gate(y, x, half, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(y + at), tl.load(y + half + at)
    tl.store(x + at, (a / (1 + tl.exp(-a)) * b).to(tl.bfloat16))


def prepare(device, repaired):
    depth, width, inner = (8, 4096, 14336) if device == "cuda" else (2, 256, 512)
    up = torch.randn(depth, 2 * inner, width, device=device, dtype=torch.bfloat16) * width**-0.5
    down = torch.randn(depth, width, inner, device=device, dtype=torch.bfloat16) * inner**-0.5
    word = torch.randn(width, device=device, dtype=torch.bfloat16)
    return up, down, word, torch.empty(2 * inner, device=device)


def run(state, steps, repaired):
    up, down, word, y = state
    inner, width = down.shape[2], down.shape[1]
    block, warps = (1024, 4) if repaired else (64, 1)
    if not word.is_cuda:
        block = 256 if repaired else 64
    x, middle, change = word.clone(), torch.empty_like(y[:inner], dtype=word.dtype), y[:width]
    for _ in range(steps):
        for raise_, lower in zip(up, down, strict=True):
            product[(2 * inner,)](raise_, x, y, width, BLOCK=block, num_warps=warps)
            gate[(inner // 512,)](y, middle, inner, BLOCK=512, num_warps=4)
            product[(width,)](lower, middle, change, inner, BLOCK=block, num_warps=warps)
            x = (word + change).bfloat16()
    return x.float().square().mean()


main(prepare, run, steps=400)
