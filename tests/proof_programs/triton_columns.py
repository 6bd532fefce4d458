"""Sums each row of a matrix in Triton: a program takes one element of many rows at a time."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def sum_rows(x, out, rows, columns, ROWS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros([ROWS], tl.float32)
    for c in range(0, columns):
        total += tl.load(x + r * columns + c)
    tl.store(out + r, total)


@triton.jit
def sum_rows_in_order(x, out, rows, columns, COLUMNS: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, columns, COLUMNS):
        total += tl.load(x + r * columns + start + c)
    tl.store(out + r, tl.sum(total))


def prepare(device, repaired):
    return torch.rand(65536, 2048, device=device), torch.empty(65536, device=device)


def run(state, steps, repaired):
    x, out = state
    for _ in range(steps):
        if repaired:
            sum_rows_in_order[(x.shape[0],)](x, out, *x.shape, COLUMNS=1024)
        else:
            sum_rows[(x.shape[0] // 128,)](x, out, *x.shape, ROWS=128)
    return out.mean()


main(prepare, run, steps=40)
