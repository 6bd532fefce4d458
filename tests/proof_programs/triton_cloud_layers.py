"""Learns layers of clouds from a radar: numbers are left out by chance on the way forth, and the same ones on the way back, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def by_chance(at, seed):
    """Return a number of 32 bits for each place, always the same one for it and the seed."""
    mixed = (at.to(tl.uint32) ^ seed.to(tl.uint32)) * 0x9E3779B1
    mixed = (mixed ^ (mixed >> 15)) * 0x85EBCA77
    return mixed ^ (mixed >> 13)


@triton.jit
def scale_of(at, seed):
    return tl.where((by_chance(at, seed) >> 8).to(tl.int32) > 1864135, 9.0 / 8, 0.0)


@triton.jit
def forth_and_keep(x, y, scales, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scale = scale_of(at, seed)
    tl.store(scales + at, scale.to(scales.dtype.element_ty))
    tl.store(y + at, tl.load(x + at) * scale)


@triton.jit
def back_by_kept(dy, dx, scales, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scale = tl.load(scales + at).to(tl.float32)
    tl.store(dx + at, tl.load(dy + at) * scale)


@triton.jit
def by_seed(x, y, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) * scale_of(at, seed))


class LeftOut:
    def __init__(self, block, again):
        self.block, self.again = block, again

    def forth(self, x, seed):
        y, grid = torch.empty_like(x), (x.numel() // self.block,)
        if self.again:
            by_seed[grid](x, y, seed, BLOCK=self.block, num_warps=4)
            return y, None
        scales = torch.empty_like(x)
        forth_and_keep[grid](x, y, scales, seed, BLOCK=self.block, num_warps=4)
        return y, scales

    def back(self, dy, seed, scales):
        dx, grid = torch.empty_like(dy), (dy.numel() // self.block,)
        if self.again:
            by_seed[grid](dy, dx, seed, BLOCK=self.block, num_warps=4)
        else:
            back_by_kept[grid](dy, dx, scales, BLOCK=self.block, num_warps=4)
        return dx


def prepare(device, repaired):
    layers, places, block = (1024, 131_072, 2048) if device == "cuda" else (4, 64, 64)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x = torch.randn(2, layers, places, device=device, dtype=dtype)
    return LeftOut(block, again=repaired), x


def run(state, steps, repaired):
    left_out, x = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        seed = 2 * step + 3
        y, scales = left_out.forth(x[step % 2], seed)
        dx = left_out.back(y, seed, scales)
        total += dx[step % len(dx)].float().square().mean()
    return total / steps


main(prepare, run, steps=2500)
