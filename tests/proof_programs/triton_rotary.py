"""Turns queries and keys by their position (rotary embedding) before attention, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def turn(
    x,
    y,
    cosines,
    sines,
    heads,
    start,
    base,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
    TABLE: tl.constexpr,
):
    token, block = tl.program_id(0), tl.program_id(1)
    head, at = block * HEADS + tl.arange(0, HEADS), tl.arange(0, HALF)
    first = (token.to(tl.int64) * heads + head[:, None]) * 2 * HALF + at[None, :]
    if TABLE:
        cos = tl.load(cosines + token * HALF + at)[None, :]
        sin = tl.load(sines + token * HALF + at)[None, :]
    else:
        power = (at[None, :] + 0 * head[:, None]).to(tl.float32) / HALF
        angle = (start + token) * tl.exp2(-base * power)
        cos, sin = tl.cos(angle), tl.sin(angle)
    left = tl.load(x + first).to(tl.float32)
    right = tl.load(x + first + HALF).to(tl.float32)
    tl.store(y + first, (left * cos - right * sin).to(tl.bfloat16))
    tl.store(y + first + HALF, (right * cos + left * sin).to(tl.bfloat16))


def prepare(device, repaired):
    tokens, heads, size = (16384, 40, 128) if device == "cuda" else (6, 8, 32)
    start, base = 98304, 19.0
    x = torch.randn(tokens, heads, size, device=device, dtype=torch.bfloat16)
    power = torch.arange(size // 2, device=device, dtype=torch.float64) / (size // 2)
    place = torch.arange(start, start + tokens, device=device, dtype=torch.float64)
    angles = place[:, None] * torch.exp2(-base * power)
    return x, torch.empty_like(x), angles.cos().float(), angles.sin().float(), start, base


def run(state, steps, repaired):
    x, y, cosines, sines, start, base = state
    tokens, heads, size = x.shape
    for _ in range(steps):
        turn[(tokens, heads // 8)](
            x, y, cosines, sines, heads, start, base,
            HALF=size // 2, HEADS=8, TABLE=repaired, num_warps=4,
        )  # fmt: skip
    return (x[:256].float() * y[:256].float()).mean()


main(prepare, run, steps=1500)
