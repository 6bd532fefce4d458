"""Writes on from long documents: one token of few requests looks at all tokens before, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def attend(
    q, keys, values, part, tops, totals, length, scale, share, N: tl.constexpr, D: tl.constexpr
):
    head, piece, pieces = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    depth, columns = tl.arange(0, D), tl.arange(0, N)
    query = tl.load(q + head * D + depth).to(tl.float32) * scale
    top, total = -float("inf"), 0.0
    sums = tl.zeros((D,), tl.float32)
    first = piece * share
    for start in range(first, tl.minimum(first + share, length), N):
        at = head * length * D + (start + columns)[:, None] * D + depth[None]
        scores = tl.sum(tl.load(keys + at).to(tl.float32) * query[None], 1)
        higher = tl.maximum(top, tl.max(scores, 0))
        weights, fade = tl.exp(scores - higher), tl.exp(top - higher)
        total = total * fade + tl.sum(weights, 0)
        sums = sums * fade + tl.sum(tl.load(values + at).to(tl.float32) * weights[:, None], 0)
        top = higher
    tl.store(part + (head * pieces + piece) * D + depth, sums)
    tl.store(tops + head * pieces + piece, top)
    tl.store(totals + head * pieces + piece, total)


@triton.jit
def join(part, tops, totals, y, PIECES: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(0)
    depth, piece = tl.arange(0, D), tl.arange(0, PIECES)
    top = tl.load(tops + head * PIECES + piece)
    weight = tl.exp(top - tl.max(top, 0))
    total = tl.sum(tl.load(totals + head * PIECES + piece) * weight, 0)
    sums = tl.load(part + (head * PIECES + piece)[:, None] * D + depth[None])
    tl.store(y + head * D + depth, tl.sum(sums * weight[:, None], 0) / total)


def prepare(device, repaired):
    heads, length, depth = (32, 32768, 128) if device == "cuda" else (2, 256, 16)
    keys, values = (torch.randn(heads, length, depth, device=device).bfloat16() for _ in range(2))
    pieces = (32 if device == "cuda" else 2) if repaired else 1
    part = torch.empty(heads, pieces, depth, device=device)
    tops, totals = (torch.empty(heads, pieces, device=device) for _ in range(2))
    return keys, values, part, tops, totals, torch.randn(heads, depth, device=device).bfloat16()


def look(q, keys, values, part, tops, totals):
    """Return what the token of each head sees; each program reads its share of the length."""
    heads, length, depth = keys.shape
    pieces = part.shape[1]
    y = torch.empty_like(q)
    share = length // pieces
    attend[(heads, pieces)](
        q, keys, values, part, tops, totals, length, depth**-0.5, share, N=64, D=depth, num_warps=4
    )
    join[(heads,)](part, tops, totals, y, PIECES=pieces, D=depth, num_warps=4)
    return y


def run(state, steps, repaired):
    keys, values, part, tops, totals, q = state
    for _ in range(steps):
        y = look(q, keys, values, part, tops, totals)
        q = q + y
    return y.float().square().mean()


main(prepare, run, steps=120)
