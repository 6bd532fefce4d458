"""Trains a norm over stations of a tide model: what flows back to the readings, the weight and the bias, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def back_by_row(
    dy, x, weight, mean, rstd, dx, dweight, dbias, width, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    at = row * width + cols
    w = tl.load(weight + cols, mask=mask, other=0.0)
    g = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(rstd + row)
    x_hat = (tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - tl.load(mean + row)) * scale
    wdy = w * g
    c1 = tl.sum(tl.where(mask, x_hat * wdy, 0.0), 0) / width
    c2 = tl.sum(wdy, 0) / width
    tl.store(dx + at, ((wdy - (x_hat * c1 + c2)) * scale).to(dx.dtype.element_ty), mask=mask)
    tl.atomic_add(dweight + cols, g * x_hat, mask=mask)
    tl.atomic_add(dbias + cols, g, mask=mask)


@triton.jit
def back_by_share(
    dy, x, weight, mean, rstd, dx, dweight, dbias, width, rows, share, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    w = tl.load(weight + cols, mask=mask, other=0.0)
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    for row in range(program * share, tl.minimum((program + 1) * share, rows)):
        at = row * width + cols
        g = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
        scale = tl.load(rstd + row)
        x_hat = (tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - tl.load(mean + row)) * scale
        wdy = w * g
        c1 = tl.sum(tl.where(mask, x_hat * wdy, 0.0), 0) / width
        c2 = tl.sum(wdy, 0) / width
        tl.store(dx + at, ((wdy - (x_hat * c1 + c2)) * scale).to(dx.dtype.element_ty), mask=mask)
        dw += g * x_hat
        db += g
    tl.store(dweight + program * width + cols, dw, mask=mask)
    tl.store(dbias + program * width + cols, db, mask=mask)


class Backward:
    def __init__(self, weight, programs, shared):
        self.weight, self.programs, self.shared = weight, programs, shared

    def __call__(self, dy, x, mean, rstd):
        rows, width = x.shape
        dx = torch.empty_like(x)
        tensors = (dy, x, self.weight, mean, rstd, dx)
        block = triton.next_power_of_2(width)
        if self.shared:
            sums = self.weight.new_empty(2, self.programs, width)
            back_by_share[(self.programs,)](
                *tensors,
                *sums,
                width,
                rows,
                triton.cdiv(rows, self.programs),
                BLOCK=block,
                num_warps=8,
            )
            return dx, *sums.sum(1)
        sums = self.weight.new_zeros(2, width)
        back_by_row[(rows,)](*tensors, *sums, width, BLOCK=block, num_warps=8)
        return dx, *sums


def prepare(device, repaired):
    cuda = device == "cuda"
    rows, width = (65536, 2048) if cuda else (10, 24)
    programs = 2 * torch.cuda.get_device_properties(0).multi_processor_count if cuda else 3
    dtype = torch.bfloat16 if cuda else torch.float32
    x, dy = torch.randn(2, rows, width, device=device, dtype=dtype)
    weight = 1 + 0.1 * torch.randn(width, device=device)
    mean = x.float().mean(1)
    rstd = (x.float().var(1, unbiased=False) + 1e-5).rsqrt()
    return Backward(weight, programs, shared=repaired), dy, x, mean, rstd


def run(state, steps, repaired):
    backward, dy, x, mean, rstd = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        dx, dweight, dbias = backward(dy, x, mean, rstd)
        total += dweight.abs().mean() + dbias.abs().mean() + dx[step % len(dx)].float().abs().mean()
    return total / steps


main(prepare, run, steps=1500)
