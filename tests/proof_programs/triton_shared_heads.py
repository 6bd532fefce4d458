"""Attention of a new word over keys and values that groups of heads share, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def attend(
    q, keys, values, out, length, scale,
    SHARED: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # a program makes HEADS of the SHARED heads that have the same keys; there are at least 16 rows
    first = tl.program_id(0).to(tl.int64) * HEADS
    group = first // SHARED
    row, column, time = tl.arange(0, 16), tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    there = (row < HEADS)[:, None]
    at = (first + row)[:, None] * WIDTH + column[None, :]
    query = tl.load(q + at, mask=there, other=0.0)
    best = tl.full((16,), -1e30, tl.float32)
    total = tl.zeros((16,), tl.float32)
    made = tl.zeros((16, WIDTH), tl.float32)
    for start in range(0, length, BLOCK):
        place = (group * length + start + time)[:, None] * WIDTH + column[None, :]
        score = tl.dot(query, tl.trans(tl.load(keys + place))) * scale
        now = tl.maximum(best, tl.max(score, axis=1))
        weight = tl.exp(score - now[:, None])
        keep = tl.exp(best - now)
        total = total * keep + tl.sum(weight, axis=1)
        made = made * keep[:, None] + tl.dot(weight.to(tl.bfloat16), tl.load(values + place))
        best = now
    tl.store(out + at, (made / total[:, None]).to(tl.bfloat16), mask=there)


def prepare(device, repaired):
    texts, groups, shared, length, width = (
        (64, 8, 8, 2048, 128) if device == "cuda" else (2, 2, 4, 128, 32)
    )
    q = torch.randn(texts, groups, shared, width, device=device).bfloat16()
    keys, values = (
        torch.randn(texts, groups, length, width, device=device).bfloat16() for _ in range(2)
    )
    return q, keys, values, torch.empty_like(q)


def run(state, steps, repaired):
    q, keys, values, out = state
    texts, groups, shared, width = q.shape
    heads = shared if repaired else 1
    for _ in range(steps):
        attend[(texts * groups * shared // heads,)](
            q, keys, values, out, keys.shape[2], width**-0.5,
            SHARED=shared, HEADS=heads, WIDTH=width, BLOCK=64, num_warps=4,
        )  # fmt: skip
    return out.float().square().mean()


main(prepare, run, steps=150)
