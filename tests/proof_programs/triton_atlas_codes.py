"""Multiplies what is known of places by weights kept as codes of eight bits, with a scale for each group of 128, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def multiply_wide(
    a,
    codes,
    scales,
    out,
    inner,
    columns,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for begin in range(0, inner, DEPTH):
        k = begin + tl.arange(0, DEPTH)
        x = tl.load(a + row[:, None] * inner + k[None, :])
        code = tl.load(codes + k[:, None] * columns + column[None, :])
        scale = tl.load(scales + (k[:, None] // GROUP) * columns + column[None, :])
        total = tl.dot(x, (code.to(tl.float32) * scale).to(tl.bfloat16), total)
    tl.store(out + row[:, None] * columns + column[None, :], total.to(tl.bfloat16))


@triton.jit
def multiply_row(
    a,
    codes,
    scales,
    out,
    inner,
    columns,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for begin in range(0, inner, DEPTH):
        k = begin + tl.arange(0, DEPTH)
        x = tl.load(a + row[:, None] * inner + k[None, :])
        code = tl.load(codes + k[:, None] * columns + column[None, :])
        scale = tl.load(scales + (begin // GROUP) * columns + column)
        total = tl.dot(x, (code.to(tl.float32) * scale[None, :]).to(tl.bfloat16), total)
    tl.store(out + row[:, None] * columns + column[None, :], total.to(tl.bfloat16))


class Layer:
    """Takes the scales as wide as the codes, or a row of them for the codes of a group."""

    def __init__(self, inner, columns, group, device, by_row):
        self.codes = torch.randint(-127, 128, (inner, columns), dtype=torch.int8, device=device)
        self.scales = (torch.rand(inner // group, columns, device=device) + 0.5) / 127 / inner**0.5
        self.group, self.by_row = group, by_row

    def __call__(self, x, rows, wide, depth):
        inner, columns = self.codes.shape
        out = torch.empty(len(x), columns, device=x.device, dtype=torch.bfloat16)
        multiply = multiply_row if self.by_row else multiply_wide
        multiply[(len(x) // rows, columns // wide)](
            x, self.codes, self.scales, out, inner, columns,
            GROUP=self.group, ROWS=rows, COLUMNS=wide, DEPTH=depth, num_warps=4, num_stages=3,
        )  # fmt: skip
        return out


def prepare(device, repaired):
    places, width, group, sizes = (
        (512, 4096, 128, (64, 64, 64)) if device == "cuda" else (16, 64, 32, (16, 16, 16))
    )
    layers = [Layer(width, width, group, device, by_row=repaired) for _ in range(2)]
    return layers, torch.randn(places, width, device=device, dtype=torch.bfloat16), sizes


def run(state, steps, repaired):
    layers, places, sizes = state
    total = torch.zeros((), device=places.device)
    for _ in range(steps):
        x = places
        for layer in layers:
            x = layer(x, *sizes)
        total += x.float().square().mean()
    return total / steps


main(prepare, run, steps=2500, small=1)
