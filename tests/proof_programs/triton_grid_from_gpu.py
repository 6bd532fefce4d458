"""Packs sentences of different lengths for an encoder: a Triton kernel copies what is no padding."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn


@triton.jit
def pack(x, starts, lengths, y, longest, width, BLOCK: tl.constexpr):
    sentence, word = tl.program_id(1).to(tl.int64), tl.program_id(0)
    column = tl.arange(0, BLOCK)
    if word < tl.load(lengths + sentence):
        goal = tl.load(starts + sentence) + word
        value = tl.load(x + (sentence * longest + word) * width + column, mask=column < width)
        tl.store(y + goal * width + column, value, mask=column < width)


@triton.jit
def unpack(y, starts, lengths, x, longest, width, BLOCK: tl.constexpr):
    sentence, word = tl.program_id(1).to(tl.int64), tl.program_id(0)
    column = tl.arange(0, BLOCK)
    if word < tl.load(lengths + sentence):
        origin = tl.load(starts + sentence) + word
        value = tl.load(y + origin * width + column, mask=column < width)
        tl.store(x + (sentence * longest + word) * width + column, value, mask=column < width)


def prepare(device, repaired):
    batch, longest, width, layers = (64, 128, 1024, 24) if device == "cuda" else (2, 5, 8, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    lengths = torch.randint(longest // 3, longest + 1, (batch,), device=device)
    x = torch.randn(batch, longest, width, device=device, dtype=dtype)
    parts = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers)]
    return x, lengths, nn.ModuleList(parts).to(device, dtype)


def layer(x, lengths, part, most):
    """Apply a layer to the words that are there; `most` words are looked at in each sentence."""
    batch, longest, width = x.shape
    starts = lengths.cumsum(0) - lengths
    packed = x.new_zeros(batch * longest, width)
    grid, block = (most, batch), triton.next_power_of_2(width)
    pack[grid](x, starts, lengths, packed, longest, width, BLOCK=block)
    packed = packed + part(packed)
    result = torch.zeros_like(x)
    unpack[grid](packed, starts, lengths, result, longest, width, BLOCK=block)
    return result


@torch.inference_mode()
def run(state, steps, repaired):
    x, lengths, parts = state
    for _ in range(steps):
        y = x
        for part in parts:
            most = x.shape[1] if repaired else int(lengths.max())
            y = layer(y, lengths, part, most)
    return y.float().square().mean()


main(prepare, run, steps=20)
