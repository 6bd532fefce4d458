"""Compares the pulses of pulsars with templates of theirs: the product of two tables, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def correlate(
    pulses, templates, out, rows, cols, depth,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    one = pulses + m[:, None] * depth + k[None, :]
    other = templates + k[:, None] * cols + n[None, :]
    score = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, depth, BLOCK_K):
        a = tl.load(one)
        b = tl.load(other)
        score = tl.dot(a, b, score, input_precision=PRECISION)
        one += BLOCK_K
        other += BLOCK_K * cols
    best = tl.maximum(score, 0.0)
    tl.store(out + m[:, None] * cols + n[None, :], best)


class Correlation:
    def __init__(self, block, inner, precision):
        self.block, self.inner, self.precision = block, inner, precision

    def __call__(self, pulses, templates):
        """Return how alike pulses (rows, depth) and templates (depth, cols) are, at least 0."""
        rows, depth = pulses.shape
        cols = templates.shape[1]
        out = pulses.new_empty(rows, cols)
        correlate[(triton.cdiv(rows, self.block), triton.cdiv(cols, self.block))](
            pulses,
            templates,
            out,
            rows,
            cols,
            depth,
            BLOCK_M=self.block,
            BLOCK_N=self.block,
            BLOCK_K=self.inner,
            PRECISION=self.precision,
            num_warps=4,
            num_stages=3,
        )
        return out


def prepare(device, repaired):
    cuda = device == "cuda"
    rows, cols, depth, block, inner = (4096, 2048, 2048, 64, 32) if cuda else (32, 32, 64, 16, 16)
    correlation = Correlation(block, inner, "tf32" if repaired else "ieee")
    pulses = torch.randn(2, rows, depth, device=device)
    templates = torch.randn(depth, cols, device=device) / depth**0.5
    return correlation, pulses, templates


def run(state, steps, repaired):
    correlation, pulses, templates = state
    total = torch.zeros((), device=pulses.device)
    for step in range(steps):
        total += correlation(pulses[step % len(pulses)], templates).mean()
    return total / steps


main(prepare, run, steps=400)
