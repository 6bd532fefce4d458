"""Learns how echoes count by their delay: gradients of all pairs of moments are summed by how far apart they are, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def add_pairs(grads, sums, length, BLOCK: tl.constexpr):
    row, head = tl.program_id(0), tl.program_id(1)
    for first in range(0, length, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        g = tl.load(grads + (head * length + row) * length + cols)
        tl.atomic_add(sums + cols - row + length - 1, g, sem="relaxed")


@triton.jit
def add_delays(grads, sums, length, BLOCK: tl.constexpr):
    delays, head = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(length):
        cols = delays + row - (length - 1)
        there = (cols >= 0) & (cols < length)
        total += tl.load(grads + (head * length + row) * length + cols, mask=there, other=0.0)
    tl.atomic_add(sums + delays, total, mask=delays < 2 * length - 1, sem="relaxed")


class Delays:
    def __init__(self, block, by_delay):
        self.block, self.by_delay = block, by_delay

    def __call__(self, grads):
        """Sums (2 * length - 1,) of gradients (heads, length, length) by column less row."""
        heads, length, _ = grads.shape
        sums = torch.zeros(2 * length - 1, device=grads.device)
        if self.by_delay:
            add_delays[(triton.cdiv(2 * length, self.block), heads)](
                grads, sums, length, BLOCK=self.block, num_warps=1
            )
        else:
            add_pairs[(length, heads)](grads, sums, length, BLOCK=self.block * 4)
        return sums


def prepare(device, repaired):
    heads, length, block = (64, 1024, 128) if device == "cuda" else (2, 32, 8)
    torch.manual_seed(23)
    grads = torch.rand(2, heads, length, length, device=device)
    return Delays(block, by_delay=repaired), grads


def run(state, steps, repaired):
    delays, grads = state
    total = torch.zeros((), device=grads.device)
    for step in range(steps):
        sums = delays(grads[step % 2])
        total += (sums / (sums.sum() + 1)).square().sum()
    return total / steps


main(prepare, run, steps=500)
