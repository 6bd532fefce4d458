"""Answers sixteen lawyers at once: the products of their last words with the weights of each layer, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def multiply(
    x, weight, out, width, depth, share,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    part = tl.program_id(1)
    rows = tl.arange(0, ROWS)
    cols = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = part * share + tl.arange(0, BLOCK_K)
    xs = x + rows[:, None] * depth + inner[None, :]
    weights = weight + cols[None, :] * depth + inner[:, None]
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for _ in range(0, share, BLOCK_K):
        total = tl.dot(tl.load(xs), tl.load(weights), total)
        xs += BLOCK_K
        weights += BLOCK_K
    tl.store(out + (part * ROWS + rows[:, None]) * width + cols[None, :], total)


class Product:
    """x @ weight.T for few rows; weight is (width, depth)."""

    def __init__(self, rows, width, depth, parts, block, device):
        self.parts, self.block = parts, block
        self.sums = torch.empty(parts, rows, width, device=device)
        self.share = depth // parts

    def __call__(self, x, weight):
        width, depth = weight.shape
        tiles = triton.cdiv(width, self.block)
        multiply[(tiles, self.parts)](
            x,
            weight,
            self.sums,
            width,
            depth,
            self.share,
            ROWS=len(x),
            BLOCK_N=self.block,
            BLOCK_K=min(128, self.share),
            num_warps=4,
            num_stages=4,
        )
        return self.sums.sum(0) if self.parts > 1 else self.sums[0]


def prepare(device, repaired):
    cuda = device == "cuda"
    rows, width, depth, block = (16, 1024, 57344, 64) if cuda else (16, 32, 128, 16)
    dtype = torch.bfloat16 if cuda else torch.float32
    parts = 16 if repaired and cuda else 2 if repaired else 1
    product = Product(rows, width, depth, parts, block, device)
    x = torch.randn(rows, depth, device=device, dtype=dtype)
    weights = torch.randn(4, width, depth, device=device, dtype=dtype) / depth**0.5
    return product, x, weights


def run(state, steps, repaired):
    product, x, weights = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        total += product(x, weights[step % len(weights)]).abs().mean()
    return total / steps


main(prepare, run, steps=3500)
