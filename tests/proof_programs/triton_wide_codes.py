"""Keeps activations for the backward pass as numbers of eight bits, with a scale for each row."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def pack(x, codes, scales, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(value), axis=0), 1e-8) / 127
    tl.store(scales + row, scale)
    code = tl.floor(value / scale + 0.5)
    tl.store(codes + row * width + column, code.to(codes.dtype.element_ty), mask=inside)


@triton.jit
def unpack(codes, scales, grad, y, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    code = tl.load(codes + row * width + column, mask=inside, other=0).to(tl.float32)
    value = code * tl.load(scales + row)
    upper = tl.load(grad + row * width + column, mask=inside, other=0.0).to(tl.float32)
    gate = tl.sigmoid(value)
    lower = upper * gate * (1 + value * (1 - gate))
    tl.store(y + row * width + column, lower.to(tl.bfloat16), mask=inside)


def prepare(device, repaired):
    rows, width = (32768, 4096) if device == "cuda" else (6, 50)
    x, grad = (torch.randn(rows, width, device=device).bfloat16() for _ in range(2))
    codes = torch.empty(x.shape, dtype=torch.int8 if repaired else torch.int32, device=device)
    return x, grad, codes, torch.empty(rows, device=device), torch.empty_like(x)


def run(state, steps, repaired):
    x, grad, codes, scales, y = state
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    for _ in range(steps):
        pack[(rows,)](x, codes, scales, width, BLOCK=block, num_warps=8)
        unpack[(rows,)](codes, scales, grad, y, width, BLOCK=block, num_warps=8)
    return y.float().square().mean()


main(prepare, run, steps=120)
