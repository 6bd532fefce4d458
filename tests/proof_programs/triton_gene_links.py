"""Finds which genes are read together, from how alike their counts are in a thousand samples, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def product_of_tile(
    counts, row, column, samples,
    SIDE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    ours, theirs = row * SIDE + tl.arange(0, SIDE), column * SIDE + tl.arange(0, SIDE)
    deep = tl.arange(0, DEPTH)
    total = tl.zeros((SIDE, SIDE), tl.float32)
    for start in range(0, samples, DEPTH):
        a = tl.load(counts + ours[:, None] * samples + start + deep[None, :])
        b = tl.load(counts + theirs[None, :] * samples + start + deep[:, None])
        total = tl.dot(a, b, total)
    return total


@triton.jit
def all_tiles(counts, links, genes, samples, SIDE: tl.constexpr, DEPTH: tl.constexpr):
    row, column = tl.program_id(1), tl.program_id(0)
    found = product_of_tile(counts, row, column, samples, SIDE, DEPTH).to(links.dtype.element_ty)
    ours, theirs = row * SIDE + tl.arange(0, SIDE), column * SIDE + tl.arange(0, SIDE)
    tl.store(links + ours[:, None] * genes + theirs[None, :], found)


@triton.jit
def tiles_below(counts, links, genes, samples, SIDE: tl.constexpr, DEPTH: tl.constexpr):
    number = tl.program_id(0)
    row = ((tl.sqrt(8.0 * number + 1.0) - 1.0) * 0.5).to(tl.int32)
    row = tl.where(row * (row + 1) // 2 > number, row - 1, row)
    row = tl.where((row + 1) * (row + 2) // 2 <= number, row + 1, row)
    column = number - row * (row + 1) // 2
    found = product_of_tile(counts, row, column, samples, SIDE, DEPTH).to(links.dtype.element_ty)
    ours, theirs = row * SIDE + tl.arange(0, SIDE), column * SIDE + tl.arange(0, SIDE)
    tl.store(links + ours[:, None] * genes + theirs[None, :], found)
    if row != column:
        tl.store(links + theirs[:, None] * genes + ours[None, :], tl.trans(found))


class Links:
    def __init__(self, side, depth, below):
        self.side, self.depth, self.below = side, depth, below

    def __call__(self, counts):
        genes, samples = counts.shape
        links = counts.new_empty(genes, genes)
        sizes = {"SIDE": self.side, "DEPTH": self.depth}
        tiles = genes // self.side
        if self.below:
            grid = (tiles * (tiles + 1) // 2,)
            tiles_below[grid](counts, links, genes, samples, **sizes, num_warps=8, num_stages=4)
        else:
            grid = (tiles, tiles)
            all_tiles[grid](counts, links, genes, samples, **sizes, num_warps=8, num_stages=4)
        return links


def prepare(device, repaired):
    genes, samples, side, depth = (16384, 1024, 128, 64) if device == "cuda" else (80, 32, 16, 16)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    counts = torch.randn(2, genes, samples, device=device)
    counts = counts / counts.norm(dim=2, keepdim=True)
    return Links(side, depth, below=repaired), counts.to(dtype)


def run(state, steps, repaired):
    find, counts = state
    total = torch.zeros((), device=counts.device)
    for step in range(steps):
        links = find(counts[step % 2])
        total += links[:16].float().square().sum() + links[:, :16].float().square().sum()
    return total / steps


main(prepare, run, steps=800)
