"""Smooths the loudness of many bands over time in Triton, as a front end of speech does (PCEN)."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def smooth(x, y, frames, bands, keep, LENGTH: tl.constexpr):
    band = tl.program_id(0) * LENGTH + tl.arange(0, LENGTH)
    recording = tl.program_id(1).to(tl.int64) * frames * bands
    inside = band < bands
    state = tl.zeros((LENGTH,), tl.float32)
    for frame in range(frames):
        at = recording + frame * bands + band
        state = state * keep + tl.load(x + at, mask=inside, other=0.0) * (1 - keep)
        tl.store(y + at, state, mask=inside)


@triton.jit
def compress(x, smoothed, y, number, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < number
    energy = tl.load(x + at, mask=inside, other=1.0)
    gain = tl.exp(-0.98 * tl.log(1e-6 + tl.load(smoothed + at, mask=inside, other=1.0)))
    tl.store(y + at, tl.sqrt(energy * gain + 2.0) - 1.4142135, mask=inside)


def prepare(device, repaired):
    shape = (128, 1000, 512) if device == "cuda" else (2, 9, 20)
    x = torch.rand(shape, device=device)
    return x, torch.empty_like(x), torch.empty_like(x)


def normalise(x, smoothed, y, length):
    """Divide the energy of each band by its mean over the time before, and compress it."""
    recordings, frames, bands = x.shape
    grid = (triton.cdiv(bands, length), recordings)
    smooth[grid](x, smoothed, frames, bands, 0.975, LENGTH=length, num_warps=1)
    number, block = x.numel(), 1024
    compress[(triton.cdiv(number, block),)](x, smoothed, y, number, BLOCK=block)


def spread(y):
    """Return how much the bands differ from their means over time."""
    return (y - y.mean(1, keepdim=True)).square().mean()


def run(state, steps, repaired):
    x, smoothed, y = state
    length = 32 if repaired else 1  # bands of a program
    for _ in range(steps):
        normalise(x, smoothed, y, length)
    return spread(y)


main(prepare, run, steps=40)
