"""Shapes the tones of a reed organ: each channel with a short filter of its own over the past, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def shape_one(sounds, filters, shaped, times, channels, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    channel = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.program_id(2).to(tl.int64) * times * channels
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(TAPS):
        past = at - tap
        x = tl.load(sounds + begin + past * channels + channel, mask=past >= 0, other=0.0)
        total += x.to(tl.float32) * tl.load(filters + tap * channels + channel)
    total = total * tl.sigmoid(total)
    tl.store(shaped + begin + at * channels + channel, total.to(tl.bfloat16))


@triton.jit
def shape_some(
    sounds,
    filters,
    shaped,
    times,
    channels,
    TAPS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    begin = tl.program_id(2).to(tl.int64) * times * channels
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for tap in tl.static_range(TAPS):
        past = at - tap
        heard = tl.load(sounds + begin + past * channels + channel, mask=past >= 0, other=0.0)
        total += heard.to(tl.float32) * tl.load(filters + tap * channels + channel)
    total = total * tl.sigmoid(total)
    tl.store(shaped + begin + at * channels + channel, total.to(tl.bfloat16))


class Shape:
    """A program for some times of one channel, or of some channels."""

    def __init__(self, filters, some, block):
        self.filters, self.some, self.block = filters, some, block

    def __call__(self, sounds):
        count, times, channels = sounds.shape
        shaped = torch.empty_like(sounds)
        sizes = sounds, self.filters, shaped, times, channels
        if self.some:
            rows, columns = self.block // 8, 2 * self.block // 8
            grid = (times // rows, channels // columns, count)
            shape_some[grid](*sizes, TAPS=len(self.filters), ROWS=rows, COLUMNS=columns)
        else:
            grid = (times // self.block, channels, count)
            shape_one[grid](*sizes, TAPS=len(self.filters), BLOCK=self.block)
        return shaped


def prepare(device, repaired):
    count, times, channels, block = (8, 4096, 1024, 256) if device == "cuda" else (2, 32, 8, 32)
    sounds = torch.randn(2, count, times, channels, device=device, dtype=torch.bfloat16)
    return Shape(torch.randn(4, channels, device=device), repaired, block), sounds


def run(state, steps, repaired):
    shape, sounds = state
    for step in range(steps):
        shaped = shape(sounds[step % 2])
    return shaped.float().square().mean()


main(prepare, run, steps=2000)
