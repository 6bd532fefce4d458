"""A step of a model that draws clips of a circus: what a layer found is added, and the sum is normed and coloured anew."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def add_gated(x, found, gate, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    a = tl.load(x + row * width + cols, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(found + row * width + cols, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(gate + cols, mask=mask, other=0.0)
    tl.store(out + row * width + cols, (a + g * b).to(out.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm(x, out, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    a = tl.load(x + row * width + cols, mask=mask, other=0.0).to(tl.float32)
    apart = tl.where(mask, a - tl.sum(a, 0) / width, 0.0)
    y = apart * tl.rsqrt(tl.sum(apart * apart, 0) / width + eps)
    tl.store(out + row * width + cols, y.to(out.dtype.element_ty), mask=mask)


@triton.jit
def modulate(x, scale, shift, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    a = tl.load(x + row * width + cols, mask=mask, other=0.0).to(tl.float32)
    s = tl.load(scale + cols, mask=mask, other=0.0)
    t = tl.load(shift + cols, mask=mask, other=0.0)
    tl.store(out + row * width + cols, (a * (1.0 + s) + t).to(out.dtype.element_ty), mask=mask)


@triton.jit
def add_norm_modulate(
    x, found, gate, scale, shift, sums, out, width, eps, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    a = tl.load(x + row * width + cols, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(found + row * width + cols, mask=mask, other=0.0).to(tl.float32)
    a += tl.load(gate + cols, mask=mask, other=0.0) * b
    tl.store(sums + row * width + cols, a.to(sums.dtype.element_ty), mask=mask)
    apart = tl.where(mask, a - tl.sum(a, 0) / width, 0.0)
    y = apart * tl.rsqrt(tl.sum(apart * apart, 0) / width + eps)
    y = y * (1.0 + tl.load(scale + cols, mask=mask, other=0.0))
    y += tl.load(shift + cols, mask=mask, other=0.0)
    tl.store(out + row * width + cols, y.to(out.dtype.element_ty), mask=mask)


class Boundary:
    """Between two layers of a block, with a gate, a scale and a shift (width,) of the moment."""

    def __init__(self, colours, together, eps=1e-6):
        self.colours, self.together, self.eps = colours, together, eps

    def __call__(self, x, found):
        gate, scale, shift = self.colours
        rows, width = x.shape
        block = triton.next_power_of_2(width)
        sums, out = torch.empty_like(x), torch.empty_like(x)
        if self.together:
            add_norm_modulate[(rows,)](
                x, found, gate, scale, shift, sums, out, width, self.eps, BLOCK=block, num_warps=8
            )
            return sums, out
        normed = torch.empty_like(x)
        add_gated[(rows,)](x, found, gate, sums, width, BLOCK=block, num_warps=8)
        layer_norm[(rows,)](sums, normed, width, self.eps, BLOCK=block, num_warps=8)
        modulate[(rows,)](normed, scale, shift, out, width, BLOCK=block, num_warps=8)
        return sums, out


def prepare(device, repaired):
    cuda = device == "cuda"
    rows, width = (65536, 2048) if cuda else (9, 24)
    dtype = torch.bfloat16 if cuda else torch.float32
    x, found = torch.randn(2, rows, width, device=device, dtype=dtype)
    return Boundary(0.3 * torch.randn(3, width, device=device), together=repaired), x, found


def run(state, steps, repaired):
    boundary, x, found = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        sums, out = boundary(x, found)
        total += out[step % len(out)].float().abs().mean()
        total += sums[step % len(sums)].float().abs().mean()
    return total / steps


main(prepare, run, steps=1200)
