"""Softmax over the rows of a matrix in Triton: a program for each row."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=-float("inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * columns + at, power / tl.sum(power, 0), mask=inside)


def prepare(device, repaired):
    shape = (65536, 1000) if device == "cuda" else (4, 100)
    x = torch.randn(shape, device=device, dtype=torch.float16)
    return x, torch.empty_like(x)


def run(state, steps, repaired):
    x, y = state
    rows, columns = x.shape
    block = triton.next_power_of_2(columns) if repaired else 16384  # the longest that may come
    for _ in range(steps):
        softmax[(rows,)](x, y, columns, BLOCK=block, num_warps=8)
    return y.float().square().mean()


main(prepare, run, steps=30)
