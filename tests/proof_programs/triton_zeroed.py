"""Turns pictures of eight bits into normalised numbers for a network, with a Triton kernel."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def normalise(x, mean, scale, y, pixels, BLOCK: tl.constexpr):
    """Write channels one after another; x has the channels of a pixel side by side."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    picture = tl.program_id(1).to(tl.int64) * pixels * 4
    inside = at < pixels
    for channel in tl.static_range(4):
        value = tl.load(x + picture + at * 4 + channel, mask=inside, other=0).to(tl.float32)
        value = (value - tl.load(mean + channel)) * tl.load(scale + channel)
        tl.store(y + picture + channel * pixels + at, value, mask=inside)


@triton.jit
def brightest(y, most, pixels, BLOCK: tl.constexpr):
    """Keep the largest number of each block of a picture."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    picture = tl.program_id(1).to(tl.int64) * pixels * 4
    value = tl.load(y + picture + at, mask=at < pixels, other=-float("inf"))
    place = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(most + place, tl.max(value, 0))


def prepare(device, repaired):
    batch, height, width = (64, 1080, 1920) if device == "cuda" else (2, 6, 8)
    x = torch.randint(256, (batch, height, width, 4), device=device, dtype=torch.uint8)
    mean = torch.full((4,), 120.0, device=device)
    scale = torch.full((4,), 1 / 60, device=device)
    return x, mean, scale


def to_network(x, mean, scale, make):
    """Return the pictures as numbers, channel by channel, in tensors that `make` makes."""
    batch, height, width, channels = x.shape
    pixels, block = height * width, 1024
    grid = (triton.cdiv(pixels, block), batch)
    y = make(batch, channels, height, width, device=x.device)
    normalise[grid](x, mean, scale, y, pixels, BLOCK=block)
    most = make(batch, grid[0], device=x.device)
    brightest[grid](y, most, pixels, BLOCK=block)
    return y, most


def run(state, steps, repaired):
    x, mean, scale = state
    for _ in range(steps):
        y, most = to_network(x, mean, scale, torch.empty if repaired else torch.zeros)
    return most.mean() + y[0].mean()


main(prepare, run, steps=40)
