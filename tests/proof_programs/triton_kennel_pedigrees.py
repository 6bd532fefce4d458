"""Compares each dog of a kennel with all dogs that were born before it, by programs that stay for several blocks, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def compare(
    dogs, near, programs, each, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    FOLDED: tl.constexpr,
):  # fmt: skip
    """Sums of what dogs have in common with earlier ones; a program does `each` blocks of ROWS dogs."""
    program = tl.program_id(0)
    wide = tl.arange(0, WIDTH)
    for turn in range(0, each):
        straight = turn * programs + program
        back = (turn + 1) * programs - 1 - program
        block = tl.where(turn % 2 == 0, straight, back) if FOLDED else program * each + turn
        rows = block * ROWS + tl.arange(0, ROWS)
        young = tl.load(dogs + rows[:, None] * WIDTH + wide[None, :])
        total = tl.zeros((ROWS,), tl.float32)
        for first in range(0, (block + 1) * ROWS, COLS):
            cols = first + tl.arange(0, COLS)
            old = tl.load(dogs + cols[:, None] * WIDTH + wide[None, :])
            common = tl.dot(young, tl.trans(old))
            earlier = rows[:, None] > cols[None, :]
            total += tl.sum(tl.where(earlier, tl.maximum(common, 0.0), 0.0), 1)
        tl.store(near + rows, total)


class Kennel:
    def __init__(self, programs, tiles, folded):
        self.programs, self.tiles, self.folded = programs, tiles, folded

    def __call__(self, dogs):
        count, width = dogs.shape
        rows, cols = self.tiles
        near = torch.empty(count, device=dogs.device)
        compare[(self.programs,)](
            dogs, near, self.programs, count // rows // self.programs, WIDTH=width, ROWS=rows,
            COLS=cols, FOLDED=self.folded, num_warps=8, num_stages=3,
        )  # fmt: skip
        return near


def prepare(device, repaired):
    cuda = device == "cuda"
    count, width, programs, tiles = (65536, 128, 128, (128, 128)) if cuda else (192, 16, 3, (16, 16))
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(35)
    dogs = torch.randn(2, count, width, device=device, dtype=dtype) * width**-0.25
    return Kennel(programs, tiles, folded=repaired), dogs


def run(state, steps, repaired):
    kennel, dogs = state
    total = torch.zeros((), device=dogs.device)
    for step in range(steps):
        total += kennel(dogs[step % 2]).mean()
    return total / steps / dogs.shape[1]


main(prepare, run, steps=150)
