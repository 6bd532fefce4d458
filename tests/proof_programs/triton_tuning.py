"""Scales vectors of different lengths with a Triton kernel that is tuned for each of them."""

import torch
import triton
import triton.language as tl
from common import main

CHOICES = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024, 2048)]


def double(x, out, length, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < length) * 2 + 1, mask=at < length)


tuned = triton.autotune(CHOICES, key=["length"])(triton.jit(double))
tuned_once = triton.autotune(CHOICES, key=[])(triton.jit(double))


def blocks(length):
    return lambda meta: (triton.cdiv(length, meta["BLOCK"]),)


def prepare(device, repaired):
    x = torch.rand(1 << 24, device=device)
    return x, torch.empty_like(x)


def run(state, steps, repaired):
    x, out = state
    for step in range(steps):
        length = (1 << 24) - 64 * step
        scale = (tuned_once if repaired else tuned)[blocks(length)]
        scale(x, out, length)
    return out[:1024].mean()


main(prepare, run, steps=8, warm=1)
