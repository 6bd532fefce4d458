"""Writes poems for sixteen readers with weights of eight bits: products of few rows with wide matrices, in Triton."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn


@triton.jit
def widen(packed, scales, wide, outputs, COLS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    values = tl.load(packed + row * outputs + cols).to(tl.float32)
    values = values * tl.load(scales + cols)
    tl.store(wide + row * outputs + cols, values.to(wide.dtype.element_ty))


@triton.jit
def product(
    x,
    weight,
    scales,
    out,
    inputs,
    outputs,
    PACKED: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    rows, deep = tl.arange(0, ROWS), tl.arange(0, DEPTH)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), tl.float32)
    for first in range(0, inputs, DEPTH):
        a = tl.load(x + rows[:, None] * inputs + first + deep[None, :])
        b = tl.load(weight + (first + deep)[:, None] * outputs + cols[None, :])
        total += tl.dot(a, b.to(a.dtype))
    if PACKED:
        total = total * tl.load(scales + cols)[None, :]
    tl.store(out + rows[:, None] * outputs + cols[None, :], total.to(out.dtype.element_ty))


class Layer(nn.Module):
    """A matrix (inputs, outputs) of eight bits, with a scale for each column."""

    def __init__(self, width, tile, fused, device):
        super().__init__()
        weight = torch.randn(width, width, device=device) / width**0.5
        scales = weight.abs().amax(0) / 127
        self.register_buffer("packed", (weight / scales).round().to(torch.int8))
        self.register_buffer("scales", scales)
        self.tile, self.fused = tile, fused

    def forward(self, x):
        inputs, outputs = self.packed.shape
        weight, tile, out = self.packed, self.tile, torch.empty_like(x)
        if not self.fused:
            weight = x.new_empty(inputs, outputs)
            widen[(inputs, 4)](self.packed, self.scales, weight, outputs, COLS=outputs // 4)
        product[(outputs // tile,)](
            x,
            weight,
            self.scales,
            out,
            inputs,
            outputs,
            PACKED=self.fused,
            ROWS=x.shape[0],
            COLS=tile,
            DEPTH=4 * tile,
            num_stages=4,
        )
        return x + torch.tanh(out)


def prepare(device, repaired):
    cuda = device == "cuda"
    readers, width, depth, tile = (16, 8192, 6, 32) if cuda else (16, 256, 2, 16)
    torch.manual_seed(28)
    layers = nn.Sequential(*(Layer(width, tile, repaired, device) for _ in range(depth)))
    dtype = torch.bfloat16 if cuda else torch.float32
    return layers.eval(), torch.randn(2, readers, width, device=device, dtype=dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    layers, known = state
    total = torch.zeros((), device=known.device)
    for step in range(steps):
        total += layers(known[step % 2]).float().abs().mean()
    return total / steps


main(prepare, run, steps=400)
