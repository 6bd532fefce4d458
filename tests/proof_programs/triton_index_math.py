"""Adds what belongs to a place and to a channel to pictures of any layout, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def add_flat(
    x, place, channel, y, number, channels, height, width, sn, sc, sh, sw, BLOCK: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < number
    column = at % width
    row = at // width % height
    c = at // (width * height) % channels
    n = at // (width * height) // channels
    value = tl.load(x + n * sn + c * sc + row * sh + column * sw, mask=inside, other=0.0)
    value = value.to(tl.float32) + tl.load(place + row * width + column, mask=inside, other=0.0)
    value += tl.load(channel + c, mask=inside, other=0.0)
    tl.store(y + at, value.to(tl.bfloat16), mask=inside)


@triton.jit
def add_rows(x, place, channel, y, channels, height, width, sn, sc, sh, sw, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, picture = tl.program_id(1), tl.program_id(2)
    c, n = picture % channels, (picture // channels).to(tl.int64)
    inside = column < width
    value = tl.load(x + n * sn + c * sc + row * sh + column * sw, mask=inside, other=0.0)
    value = value.to(tl.float32) + tl.load(place + row * width + column, mask=inside, other=0.0)
    to = (picture.to(tl.int64) * height + row) * width + column
    value += tl.load(channel + c)
    tl.store(y + to, value.to(tl.bfloat16), mask=inside)


def add(x, place, channel, y, by_row):
    """Write x + place[row, column] + channel[channel] to y."""
    batch, channels, height, width = x.shape
    if by_row:
        block = triton.next_power_of_2(width)
        grid = (1, height, batch * channels)
        add_rows[grid](x, place, channel, y, channels, height, width, *x.stride(), BLOCK=block)
    else:
        grid = (triton.cdiv(x.numel(), 1024),)
        add_flat[grid](
            x, place, channel, y, x.numel(), channels, height, width, *x.stride(), BLOCK=1024
        )


def prepare(device, repaired):
    shape = (32, 64, 200, 250) if device == "cuda" else (2, 3, 5, 7)
    x = torch.randn(shape, device=device).bfloat16()
    place, channel = torch.randn(shape[2:], device=device), torch.randn(shape[1], device=device)
    return x, place, channel, torch.empty_like(x)


def run(state, steps, repaired):
    for _ in range(steps):
        add(*state, repaired)
    return state[-1].float().square().mean()


main(prepare, run, steps=100)
