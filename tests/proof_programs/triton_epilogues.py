"""The end of a feed-forward layer in Triton: bias, activation, dropout mask and residual."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def add_bias(x, bias, y, columns, number, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < number
    value = tl.load(x + at, mask=inside).to(tl.float32)
    value += tl.load(bias + at % columns, mask=inside).to(tl.float32)
    tl.store(y + at, value, mask=inside)


@triton.jit
def activate(x, y, number, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < number
    value = tl.load(x + at, mask=inside).to(tl.float32)
    tl.store(y + at, value * tl.sigmoid(1.702 * value), mask=inside)


@triton.jit
def drop(x, kept, y, number, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < number
    value = tl.load(x + at, mask=inside).to(tl.float32)
    stays = tl.load(kept + at, mask=inside, other=0) > 0
    tl.store(y + at, tl.where(stays, value / 0.9, 0.0), mask=inside)


@triton.jit
def add_rest(x, rest, y, number, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < number
    value = tl.load(x + at, mask=inside).to(tl.float32)
    value += tl.load(rest + at, mask=inside).to(tl.float32)
    tl.store(y + at, value, mask=inside)


@triton.jit
def all_at_once(x, bias, kept, rest, y, columns, number, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < number
    value = tl.load(x + at, mask=inside).to(tl.float32)
    value += tl.load(bias + at % columns, mask=inside).to(tl.float32)
    value *= tl.sigmoid(1.702 * value)
    stays = tl.load(kept + at, mask=inside, other=0) > 0
    value = tl.where(stays, value / 0.9, 0.0)
    value += tl.load(rest + at, mask=inside).to(tl.float32)
    tl.store(y + at, value, mask=inside)


def prepare(device, repaired):
    rows, columns = (16384, 4096) if device == "cuda" else (5, 33)
    x, rest = (torch.randn(rows, columns, device=device).bfloat16() for _ in range(2))
    kept = (torch.rand(rows, columns, device=device) < 0.9).to(torch.uint8)
    bias = torch.randn(columns, device=device).bfloat16()
    return x, bias, kept, rest, torch.empty_like(x)


def finish(x, bias, kept, rest, y):
    """Write the layer's result to y, kernel by kernel."""
    number, block = x.numel(), 2048
    grid = (triton.cdiv(number, block),)
    add_bias[grid](x, bias, y, x.shape[1], number, BLOCK=block)
    activate[grid](y, y, number, BLOCK=block)
    drop[grid](y, kept, y, number, BLOCK=block)
    add_rest[grid](y, rest, y, number, BLOCK=block)


def run(state, steps, repaired):
    x, bias, kept, rest, y = state
    number, block = x.numel(), 2048
    for _ in range(steps):
        if repaired:
            grid = (triton.cdiv(number, block),)
            all_at_once[grid](x, bias, kept, rest, y, x.shape[1], number, BLOCK=block)
        else:
            finish(x, bias, kept, rest, y)
    return y.float().square().mean()


main(prepare, run, steps=200)
