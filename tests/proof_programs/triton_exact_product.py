"""How the genes of many cells vary together: the product of a table with itself, tile by tile in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def covariance(x, out, cells, genes, M: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * M + tl.arange(0, M)
    total = tl.zeros((M, M), tl.float32)
    for start in range(0, cells, K):
        at = (start + tl.arange(0, K)).to(tl.int64)
        one = tl.load(x + at[None, :] * genes + i[:, None])
        other = tl.load(x + at[:, None] * genes + j[None, :])
        total = tl.dot(one, other, total, input_precision=PRECISION)
    tl.store(out + i[:, None] * genes + j[None, :], total / cells)


def prepare(device, repaired):
    cells, genes = (16384, 4096) if device == "cuda" else (128, 128)
    x = torch.randn(cells, genes, device=device)
    x += x.roll(1, 1)
    return x - x.mean(0), torch.empty(genes, genes, device=device)


def run(state, steps, repaired):
    x, out = state
    cells, genes = x.shape
    grid = genes // 64, genes // 64
    for _ in range(steps):
        covariance[grid](
            x, out, cells, genes, M=64, K=32,
            PRECISION="tf32" if repaired else "ieee", num_warps=4, num_stages=3,
        )  # fmt: skip
    return out.square().mean() * genes


main(prepare, run, steps=50)
