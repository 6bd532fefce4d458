"""The mean squared error of two tensors in Triton, added up in one number."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def error(a, b, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(a + i) - tl.load(b + i)
    tl.atomic_add(out + tl.zeros_like(i), d * d)


@triton.jit
def error_by_block(a, b, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(a + i) - tl.load(b + i)
    tl.store(out + tl.program_id(0), tl.sum(d * d))


def prepare(device, repaired):
    a, b = torch.rand(2, 1 << 22, device=device)
    return a, b


def run(state, steps, repaired):
    a, b = state
    total = torch.zeros((), device=a.device)
    programs = a.numel() // 1024
    for _ in range(steps):
        if repaired:
            out = torch.empty(programs, device=a.device)
            error_by_block[(programs,)](a, b, out, BLOCK=1024)
        else:
            out = torch.zeros(1, device=a.device)
            error[(programs,)](a, b, out, BLOCK=1024)
        total += out.sum() / a.numel()
    return total


main(prepare, run, steps=50)
