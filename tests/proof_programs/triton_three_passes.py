"""Layer norm of many tokens with Triton kernels."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def mean_of(x, mean, width: tl.constexpr):
    row = tl.program_id(0)
    value = tl.load(x + row * width + tl.arange(0, width)).to(tl.float32)
    tl.store(mean + row, tl.sum(value, 0) / width)


@triton.jit
def deviation_of(x, mean, deviation, width: tl.constexpr):
    row = tl.program_id(0)
    value = tl.load(x + row * width + tl.arange(0, width)).to(tl.float32) - tl.load(mean + row)
    tl.store(deviation + row, tl.sqrt(tl.sum(value * value, 0) / width + 1e-5))


@triton.jit
def normalise(x, mean, deviation, y, width: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, width)
    value = tl.load(x + row * width + at).to(tl.float32) - tl.load(mean + row)
    tl.store(y + row * width + at, (value / tl.load(deviation + row)).to(tl.bfloat16))


@triton.jit
def layer_norm(x, y, width: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, width)
    value = tl.load(x + row * width + at).to(tl.float32)
    value -= tl.sum(value, 0) / width
    deviation = tl.sqrt(tl.sum(value * value, 0) / width + 1e-5)
    tl.store(y + row * width + at, (value / deviation).to(tl.bfloat16))


def prepare(device, repaired):
    rows, width = (65536, 4096) if device == "cuda" else (8, 64)
    x = torch.randn(rows, width, device=device, dtype=torch.bfloat16) + 3
    return x, torch.empty_like(x), torch.empty(2, rows, device=device)


def run(state, steps, repaired):
    x, y, (mean, deviation) = state
    rows, width = x.shape
    for _ in range(steps):
        if repaired:
            layer_norm[(rows,)](x, y, width, num_warps=8)
        else:
            mean_of[(rows,)](x, mean, width, num_warps=8)
            deviation_of[(rows,)](x, mean, deviation, width, num_warps=8)
            normalise[(rows,)](x, mean, deviation, y, width, num_warps=8)
    return y.float().square().mean()


main(prepare, run, steps=50)
