"""Answers when ferries leave, sixteen travellers at a time: a layer whose weights are kept in eight bits, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def product(
    x, weights, scales, out, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    row_mask, col_mask = (rows < m)[:, None], (cols < n)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        depth = start + inner
        a = tl.load(
            x + rows[:, None] * k + depth[None, :],
            mask=row_mask & (depth < k)[None, :],
            other=0.0,
        )
        b = tl.load(
            weights + cols[None, :].to(tl.int64) * k + depth[:, None],
            mask=col_mask & (depth < k)[:, None],
            other=0,
        )
        total = tl.dot(a, b.to(a.dtype), total)
    total *= tl.load(scales + cols, mask=cols < n, other=0.0)[None, :]
    at = rows[:, None] * n + cols[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=row_mask & col_mask)


class EightBits:
    def __init__(self, weights, scales, blocks):
        self.weights, self.scales, self.blocks = weights, scales, blocks

    def __call__(self, x):
        (m, k), n = x.shape, len(self.weights)
        block_m, block_n, block_k = self.blocks
        out = torch.empty(m, n, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(n, block_n), triton.cdiv(m, block_m))
        product[grid](
            x,
            self.weights,
            self.scales,
            out,
            m,
            n,
            k,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            num_warps=4,
            num_stages=4,
        )
        return out


def prepare(device, repaired):
    cuda = device == "cuda"
    travellers, n, k, layers = (16, 5120, 27648, 3) if cuda else (3, 40, 64, 2)
    dtype = torch.bfloat16 if cuda else torch.float32
    blocks = (16, 32, 256) if repaired else (16, 128, 128)
    weights = torch.randint(-127, 128, (layers, n, k), device=device, dtype=torch.int8)
    scales = (0.5 + torch.rand(layers, n, device=device)) / (70 * k**0.5)
    built = [EightBits(w, s, blocks) for w, s in zip(weights, scales, strict=True)]
    return built, torch.randn(2, travellers, k, device=device).to(dtype)


def run(state, steps, repaired):
    layers, asked = state
    total = torch.zeros((), device=asked.device)
    for step in range(steps):
        found = layers[0](asked[step % 2])
        for layer in layers[1:]:
            found = found + layer(asked[step % 2])
        total += found.float().abs().mean()
    return total / steps


main(prepare, run, steps=1800)
