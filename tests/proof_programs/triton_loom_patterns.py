"""Turns patterns of looms on their sides, so that what was a row of threads becomes a column, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def turn_row(x, y, rows, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at * rows + row, 1.0 - tl.load(x + row * cols + at))


@triton.jit
def turn_tile(x, y, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = 1.0 - tl.load(x + row[:, None] * cols + at[None, :])
    tl.store(y + at[:, None] * rows + row[None, :], tl.trans(tile))


class Turn:
    def __init__(self, block, by_tile):
        self.block, self.by_tile = block, by_tile

    def __call__(self, x):
        rows, cols = x.shape
        y = torch.empty(cols, rows, device=x.device)
        if self.by_tile:
            turn_tile[(rows // self.block, cols // self.block)](x, y, rows, cols, BLOCK=self.block)
        else:
            wide = self.block * 16
            turn_row[(rows, cols // wide)](x, y, rows, cols, BLOCK=wide)
        return y


def prepare(device, repaired):
    rows, cols, block = (8192, 16384, 64) if device == "cuda" else (64, 128, 4)
    torch.manual_seed(21)
    return Turn(block, by_tile=repaired), torch.rand(rows, cols, device=device)


def run(state, steps, repaired):
    turn, pattern = state
    total = torch.zeros((), device=pattern.device)
    for step in range(steps):
        turned = turn(pattern)
        total += turned[step % 64].mean()
    return total / steps


main(prepare, run, steps=600)
