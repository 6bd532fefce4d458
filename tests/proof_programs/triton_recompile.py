"""Scales rows of many lengths in Triton; the length is a compile-time constant."""

import os
import tempfile

os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()  # as on a machine that sees it first

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def scale(x, y, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    row = tl.program_id(0) * LENGTH
    value = tl.load(x + row + c, mask=c < LENGTH, other=0.0)
    tl.store(y + row + c, value / (tl.max(tl.abs(value)) + 1e-6), mask=c < LENGTH)


@triton.jit(do_not_specialize=["length"])
def scale_any(x, y, length, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    row = tl.program_id(0) * length
    value = tl.load(x + row + c, mask=c < length, other=0.0)
    tl.store(y + row + c, value / (tl.max(tl.abs(value)) + 1e-6), mask=c < length)


def prepare(device, repaired):
    x = torch.rand(4096 * 1024, device=device)
    y = torch.zeros_like(x)
    scale[(8,)](x, y, LENGTH=500, BLOCK=1024)
    scale_any[(8,)](x, y, 500, BLOCK=1024)
    return x, y


def run(state, steps, repaired):
    x, y = state
    for step in range(steps):
        length = 1000 - 7 * step
        if repaired:
            scale_any[(4096,)](x, y, length, BLOCK=1024)
        else:
            scale[(4096,)](x, y, LENGTH=length, BLOCK=1024)
    return y[:1000000].mean()


main(prepare, run, steps=8, warm=0)
