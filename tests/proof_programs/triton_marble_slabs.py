"""Says from spectra of marble slabs which quarry they come from: layers whose product, bias and curve are one kernel in Triton."""

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
    PRECISION: tl.constexpr,
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
    weight_at = weight + cols[None, :] * inputs + deep[:, None]
    total = tl.zeros((ROWS, COLS), tl.float32)
    for _ in range(0, inputs, DEPTH):
        total = tl.dot(tl.load(x_at), tl.load(weight_at), total, input_precision=PRECISION)
        x_at += DEPTH
        weight_at += DEPTH
    total += tl.load(bias + cols)[None, :]
    tl.store(out + rows[:, None] * outputs + cols[None, :], total * tl.sigmoid(total))


class Layer(nn.Module):
    def __init__(self, inputs, outputs, block, precision):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * (3 / inputs) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.block, self.precision = block, precision

    def forward(self, x):
        (rows, inputs), outputs, block = x.shape, self.weight.shape[0], self.block
        out = x.new_empty(rows, outputs)
        product[(rows // block * (outputs // block),)](
            x,
            self.weight,
            self.bias,
            out,
            inputs,
            outputs,
            PRECISION=self.precision,
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
    slabs, width, depth, block = (8192, 1024, 6, 128) if cuda else (32, 32, 2, 16)
    torch.manual_seed(31)
    precision = "tf32" if repaired else "ieee"
    layers = [Layer(width, width, block, precision) for _ in range(depth)]
    spectra = torch.randn(2, slabs, width, device=device)
    return nn.Sequential(*layers).to(device).eval(), spectra


@torch.inference_mode()
def run(state, steps, repaired):
    model, spectra = state
    total = torch.zeros((), device=spectra.device)
    for step in range(steps):
        total += model(spectra[step % 2]).abs().mean()
    return total / steps


main(prepare, run, steps=120)
