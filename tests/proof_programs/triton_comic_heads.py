"""Brings what the heads of a model of comics ask to one length, with a kernel in Triton, and a weight for each number."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def norm_row(x, weight, out, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, WIDTH)
    values = tl.load(x + row * WIDTH + cols).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / WIDTH + eps)
    w = tl.load(weight + cols).to(tl.float32)
    tl.store(out + row * WIDTH + cols, (values * scale * w).to(out.dtype.element_ty))


@triton.jit
def norm_rows(x, weight, out, rows, eps, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, WIDTH)
    at = row[:, None] * WIDTH + cols[None, :]
    mask = (row < rows)[:, None]
    values = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 1) / WIDTH + eps)
    w = tl.load(weight + cols).to(tl.float32)
    tl.store(out + at, (values * scale[:, None] * w).to(out.dtype.element_ty), mask=mask)


class HeadNorm:
    def __init__(self, weight, rows_each, eps=1e-6):
        self.weight, self.rows_each, self.eps = weight, rows_each, eps

    def __call__(self, x):
        out = torch.empty_like(x)
        width = x.shape[-1]
        rows = x.numel() // width
        if self.rows_each > 1:
            grid = (triton.cdiv(rows, self.rows_each),)
            norm_rows[grid](x, self.weight, out, rows, self.eps, WIDTH=width, ROWS=self.rows_each)
        else:
            norm_row[(rows,)](x, self.weight, out, self.eps, WIDTH=width)
        return out


def prepare(device, repaired):
    cuda = device == "cuda"
    pages, length, heads, width = (8, 4096, 32, 64) if cuda else (2, 5, 3, 16)
    dtype = torch.bfloat16 if cuda else torch.float32
    asked = torch.randn(pages, length, heads, width, device=device, dtype=dtype)
    weight = (1 + 0.1 * torch.randn(width, device=device)).to(dtype)
    return HeadNorm(weight, rows_each=32 if repaired else 1), asked


def run(state, steps, repaired):
    norm, asked = state
    total = torch.zeros((), device=asked.device)
    for step in range(steps):
        out = norm(asked)
        total += out[step % len(out), 0].float().abs().mean()
    return total / steps


main(prepare, run, steps=700)
