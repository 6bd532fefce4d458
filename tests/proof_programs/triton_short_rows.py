"""Normalises the vectors of many heads (QK norm) with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def norm(x, weight, y, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    at = row[:, None] * WIDTH + column[None, :]
    inside = (row < rows)[:, None]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=1) / WIDTH + 1e-6)
    value = value * scale[:, None] * tl.load(weight + column)[None, :]
    tl.store(y + at, value.to(tl.bfloat16), mask=inside)


def prepare(device, repaired):
    shape = (8, 4096, 32, 64) if device == "cuda" else (1, 5, 3, 16)
    x = torch.randn(shape, device=device).bfloat16()
    weight = torch.rand(shape[-1], device=device) + 0.5
    return x, weight, torch.empty_like(x)


def run(state, steps, repaired):
    x, weight, y = state
    width = x.shape[-1]
    rows, each = x.numel() // width, 64 if repaired else 1
    for _ in range(steps):
        norm[(triton.cdiv(rows, each),)](x, weight, y, rows, WIDTH=width, ROWS=each, num_warps=4)
    return y.float().square().mean()


main(prepare, run, steps=250)
