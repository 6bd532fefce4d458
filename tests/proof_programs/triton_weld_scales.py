"""Trains the scales of a norm over short rows, of signals from a welding robot: what flows back to rows and scales."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def back(dy, x, scales, dx, parts, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    program = tl.program_id(0)
    row = program * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    at = row[:, None].to(tl.int64) * WIDTH + column[None, :]
    signal = tl.load(x + at).to(tl.float32)
    flow = tl.load(dy + at).to(tl.float32)
    rms = tl.rsqrt(tl.sum(signal * signal, 1) / WIDTH + 1e-6)
    normed = signal * rms[:, None]
    scaled = flow * tl.load(scales + column)[None, :]
    own = tl.sum(scaled * normed, 1) / WIDTH
    grad = (scaled - normed * own[:, None]) * rms[:, None]
    tl.store(dx + at, grad.to(dx.dtype.element_ty))
    tl.store(parts + program * WIDTH + column, tl.sum(flow * normed, 0))


@triton.jit
def finalize(parts, dscales, n_parts, width, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((PARTS, COLUMNS), tl.float32)
    for start in range(0, n_parts, PARTS):
        part = start + tl.arange(0, PARTS)
        total += tl.load(parts + part[:, None] * width + column[None, :])
    tl.store(dscales + column, tl.sum(total, 0))


class Backward:
    def __init__(self, scales, rows, tile, library):
        self.scales, self.rows, self.tile, self.library = scales, rows, tile, library

    def __call__(self, dy, x):
        count, width = x.shape
        n_parts = count // self.rows
        dx = torch.empty_like(x)
        parts = self.scales.new_empty(n_parts, width)
        back[(n_parts,)](dy, x, self.scales, dx, parts, ROWS=self.rows, WIDTH=width)
        if self.library:
            return dx, parts.sum(0)
        dscales = torch.empty_like(self.scales)
        many, columns = self.tile
        finalize[(width // columns,)](parts, dscales, n_parts, width, PARTS=many, COLUMNS=columns)
        return dx, dscales


def prepare(device, repaired):
    cuda = device == "cuda"
    count, width, rows, tile = (1 << 20, 128, 16, (32, 64)) if cuda else (64, 16, 4, (4, 8))
    dtype = torch.bfloat16 if cuda else torch.float32
    x, dy = torch.randn(2, count, width, device=device, dtype=dtype)
    scales = 1 + 0.1 * torch.randn(width, device=device)
    return Backward(scales, rows, tile, library=repaired), dy, x


def run(state, steps, repaired):
    backward, dy, x = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        dx, dscales = backward(dy, x)
        total += dscales.abs().mean() + dx[step % len(dx)].float().abs().mean()
    return total / steps


main(prepare, run, steps=1200)
