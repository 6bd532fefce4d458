"""Scales and shifts the channels of pictures with a Triton kernel."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def scale_flat(x, scale, shift, y, plane, channels, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    channel = at // plane % channels
    value = tl.load(x + at) * tl.load(scale + channel) + tl.load(shift + channel)
    tl.store(y + at, value)


@triton.jit
def scale_planes(x, scale, shift, y, plane, channels, BLOCK: tl.constexpr):
    picture_and_channel = tl.program_id(1)
    channel = picture_and_channel % channels
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = picture_and_channel.to(tl.int64) * plane + at
    value = tl.load(x + place) * tl.load(scale + channel) + tl.load(shift + channel)
    tl.store(y + place, value)


def prepare(device, repaired):
    pictures, channels, size = (32, 96, 128) if device == "cuda" else (1, 3, 64)
    dtype = torch.float16 if device == "cuda" else torch.float32
    x = torch.randn(pictures, channels, size * size, device=device, dtype=dtype)
    scale, shift = torch.rand(2, channels, device=device, dtype=dtype)
    return x, scale, shift, torch.empty_like(x)


def run(state, steps, repaired):
    x, scale, shift, y = state
    pictures, channels, plane = x.shape
    for _ in range(steps):
        if repaired:
            grid = (plane // 2048, pictures * channels)
            scale_planes[grid](x, scale, shift, y, plane, channels, BLOCK=2048)
        else:
            scale_flat[(x.numel() // 2048,)](x, scale, shift, y, plane, channels, BLOCK=2048)
    return y.float().mean()


main(prepare, run, steps=60)
