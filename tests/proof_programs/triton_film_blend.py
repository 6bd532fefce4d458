"""Blends the frames of one film into those of another, with a kernel in Triton and a share of its own for each frame."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def blend(one, other, shares, out, values, BLOCK: tl.constexpr):
    frame = tl.program_id(0)
    inner = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = frame.to(tl.int64) * values + inner
    mask = inner < values
    share = tl.load(shares + frame)
    a = tl.load(one + at, mask=mask, other=0.0)
    b = tl.load(other + at, mask=mask, other=0.0)
    tl.store(out + at, share * a + (1.0 - share) * b, mask=mask)


class Blend:
    def __init__(self, block):
        self.block = block

    def __call__(self, one, other, shares):
        out = torch.empty_like(one)
        values = one[0].numel()
        grid = (len(one), triton.cdiv(values, self.block))
        blend[grid](one, other, shares, out, values, BLOCK=self.block)
        return out


def prepare(device, repaired):
    frames, height, width = (1024, 108, 192) if device == "cuda" else (3, 4, 6)
    films = torch.rand(2, frames, 3, height, width, device=device)
    shares = torch.rand(frames, device=device)
    whole = triton.next_power_of_2(3 * height * width)
    return Blend(min(1024, whole) if repaired else whole), films, shares


def run(state, steps, repaired):
    blend_all, films, shares = state
    total = torch.zeros((), device=films.device)
    for step in range(steps):
        out = blend_all(films[0], films[1], shares)
        total += out[step % len(out)].mean()
    return total / steps


main(prepare, run, steps=1500)
