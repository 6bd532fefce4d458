"""Attention of a model whose heads are 256 wide, in Triton, after the kernel that served for heads of 64."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def attend(q, k, v, o, length, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * length * D
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    query = tl.load(q + head + rows[:, None] * D + columns[None, :])
    best = tl.full((M,), float("-inf"), tl.float32)
    weight = tl.zeros((M,), tl.float32)
    mixed = tl.zeros((M, D), tl.float32)
    for start in range(0, length, N):
        at = start + tl.arange(0, N)
        keys = tl.load(k + head + at[None, :] * D + columns[:, None])
        scores = tl.dot(query, keys) * scale
        higher = tl.maximum(best, tl.max(scores, axis=1))
        share = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(best - higher)
        weight = weight * shrink + tl.sum(share, axis=1)
        values = tl.load(v + head + at[:, None] * D + columns[None, :])
        mixed = mixed * shrink[:, None] + tl.dot(share.to(values.dtype), values)
        best = higher
    tl.store(
        o + head + rows[:, None] * D + columns[None, :], (mixed / weight[:, None]).to(tl.float16)
    )


def prepare(device, repaired):
    heads, length, size = (64, 4096, 256) if device == "cuda" else (1, 256, 256)
    q, k, v = (
        torch.randn(heads, length, size, device=device, dtype=torch.float16) for _ in range(3)
    )
    return q, k, v, torch.empty_like(q)


def run(state, steps, repaired):
    q, k, v, o = state
    heads, length, size = q.shape
    warps = 8 if repaired else 4
    for _ in range(steps):
        attend[(length // 128, heads)](
            q,
            k,
            v,
            o,
            length,
            size**-0.5 * 1.4427,
            M=128,
            N=64,
            D=size,
            num_warps=warps,
            num_stages=2,
        )
    return o.float().square().mean()


main(prepare, run, steps=80)
