"""Foretells how corals will grow from what is known of a reef: layers whose product and curve are one kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn


@triton.jit
def product(
    x,
    weight,
    bias,
    out,
    inputs,
    outputs,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
):
    across = outputs // COLS
    first = tl.program_id(0) // (GROUP * across) * GROUP
    inside = tl.program_id(0) % (GROUP * across)
    rows = (first + inside % GROUP) * ROWS + tl.arange(0, ROWS)
    cols = inside // GROUP * COLS + tl.arange(0, COLS)
    deep = tl.arange(0, DEPTH)
    x_at = x + rows[:, None] * inputs + deep[None, :]
    weight_at = weight + deep[:, None] * outputs + cols[None, :]
    total = tl.zeros((ROWS, COLS), tl.float32)
    for _ in range(0, inputs, DEPTH):
        a, b = tl.load(x_at), tl.load(weight_at)
        if WIDE:
            total += tl.dot(a.to(tl.float32), b.to(tl.float32))
        else:
            total += tl.dot(a, b)
        x_at += DEPTH
        weight_at += DEPTH * outputs
    total += tl.load(bias + cols)[None, :]
    total = total * tl.sigmoid(1.702 * total)
    tl.store(out + rows[:, None] * outputs + cols[None, :], total.to(out.dtype.element_ty))


class Layer(nn.Module):
    def __init__(self, inputs, outputs, block, wide):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.block, self.wide = block, wide

    def forward(self, x):
        (rows, inputs), outputs, block = x.shape, self.weight.shape[1], self.block
        out = x.new_empty(rows, outputs)
        product[(rows // block * (outputs // block),)](
            x,
            self.weight,
            self.bias,
            out,
            inputs,
            outputs,
            WIDE=self.wide,
            ROWS=block,
            COLS=block,
            DEPTH=min(block, 32),
            GROUP=min(8, rows // block),
            num_warps=8,
            num_stages=3,
        )
        return out


def prepare(device, repaired):
    cuda = device == "cuda"
    reefs, width, depth, block = (8192, 2048, 6, 128) if cuda else (32, 32, 2, 16)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(24)
    layers = [Layer(width, width, block, wide=not repaired) for _ in range(depth)]
    known = torch.randn(2, reefs, width, device=device, dtype=dtype)
    return nn.Sequential(*layers).to(device, dtype).eval(), known


@torch.inference_mode()
def run(state, steps, repaired):
    model, known = state
    total = torch.zeros((), device=known.device)
    for step in range(steps):
        total += model(known[step % 2]).float().abs().mean()
    return total / steps


main(prepare, run, steps=150)
