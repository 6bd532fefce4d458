"""Gives paintings the grain of canvas: each pixel gets noise of its own, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def grain_one(picture, out, seed, strength, BLOCK: tl.constexpr):
    for part in tl.static_range(4):
        at = (tl.program_id(0) * 4 + part) * BLOCK + tl.arange(0, BLOCK)
        noise = tl.rand(seed, at)
        x = tl.load(picture + at).to(tl.float32)
        y = x + strength * (noise - 0.5)
        tl.store(out + at, y.to(out.dtype.element_ty))


@triton.jit
def put(picture, out, at, noise, strength):
    x = tl.load(picture + at).to(tl.float32)
    y = x + strength * (noise - 0.5)
    tl.store(out + at, y.to(out.dtype.element_ty))


@triton.jit
def grain_four(picture, out, seed, strength, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first, second, third, fourth = tl.rand4x(seed, place)
    at = tl.program_id(0) * 4 * BLOCK + tl.arange(0, BLOCK)
    put(picture, out, at, first, strength)
    put(picture, out, at + BLOCK, second, strength)
    put(picture, out, at + 2 * BLOCK, third, strength)
    put(picture, out, at + 3 * BLOCK, fourth, strength)


class Canvas:
    """Draws one number from the generator for each pixel, or uses all four that it makes at a time."""

    def __init__(self, four, block):
        self.four, self.block = four, block

    def __call__(self, pictures, seed):
        out = torch.empty_like(pictures)
        grid = (pictures.numel() // (4 * self.block),)
        if self.four:
            grain_four[grid](pictures, out, seed, 0.25, BLOCK=self.block)
        else:
            grain_one[grid](pictures, out, seed, 0.25, BLOCK=self.block)
        return out


def prepare(device, repaired):
    pictures, side, block = (64, 1024, 512) if device == "cuda" else (2, 32, 64)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    painted = torch.rand(pictures, side, side, device=device, dtype=dtype)
    return painted, Canvas(repaired, block)


def run(state, steps, repaired):
    painted, canvas = state
    total = torch.zeros((), device=painted.device)
    for step in range(steps):
        total += canvas(painted, 17 + step % 5)[0].float().square().mean()
    return total / steps


main(prepare, run, steps=4000)
