"""Tells how panes of glass break, from measurements that go through two layers, with kernels in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def both_layers(
    x, first, second, out, width, hidden, outs,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for begin in range(0, hidden, DEPTH):
        unit = begin + tl.arange(0, DEPTH)
        inner = tl.zeros((ROWS, DEPTH), tl.float32)
        for start in range(0, width, DEPTH):
            deep = start + tl.arange(0, DEPTH)
            a = tl.load(x + row[:, None] * width + deep[None, :])
            b = tl.load(first + deep[:, None] * hidden + unit[None, :])
            inner = tl.dot(a, b, inner)
        inner = tl.maximum(inner, 0.0).to(second.dtype.element_ty)
        total = tl.dot(inner, tl.load(second + unit[:, None] * outs + column[None, :]), total)
    tl.store(out + row[:, None] * outs + column[None, :], total.to(out.dtype.element_ty))


@triton.jit
def one_layer(
    x, weights, out, width, outs,
    POSITIVE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, width, DEPTH):
        deep = start + tl.arange(0, DEPTH)
        a = tl.load(x + row[:, None] * width + deep[None, :])
        b = tl.load(weights + deep[:, None] * outs + column[None, :])
        total = tl.dot(a, b, total)
    if POSITIVE:
        total = tl.maximum(total, 0.0)
    tl.store(out + row[:, None] * outs + column[None, :], total.to(out.dtype.element_ty))


class Panes:
    def __init__(self, width, hidden, outs, device, dtype):
        self.first = torch.randn(width, hidden, device=device, dtype=dtype) / width**0.5
        self.second = torch.randn(hidden, outs, device=device, dtype=dtype) / hidden**0.5

    def fused(self, x):
        (width, hidden), outs = self.first.shape, self.second.shape[1]
        out = x.new_empty(len(x), outs)
        grid = (len(x) // 64, outs // 64)
        both_layers[grid](
            x, self.first, self.second, out, width, hidden, outs, ROWS=64, COLUMNS=64, DEPTH=64
        )
        return out

    def layer(self, x, weights, positive):
        width, outs = weights.shape
        out = x.new_empty(len(x), outs)
        grid = (len(x) // 64, outs // 64)
        one_layer[grid](
            x, weights, out, width, outs, POSITIVE=positive, ROWS=64, COLUMNS=64, DEPTH=64
        )
        return out

    def in_turn(self, x):
        return self.layer(self.layer(x, self.first, True), self.second, False)


def prepare(device, repaired):
    width, hidden, outs, rows = (256, 512, 512, 16384) if device == "cuda" else (64, 128, 128, 64)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = Panes(width, hidden, outs, device, dtype)
    return model, torch.randn(2, rows, width, device=device, dtype=dtype)


def run(state, steps, repaired):
    model, measured = state
    forward = model.in_turn if repaired else model.fused
    total = torch.zeros((), device=measured.device)
    for step in range(steps):
        total += forward(measured[step % 2]).float().square().mean()
    return total / steps


main(prepare, run, steps=4000)
