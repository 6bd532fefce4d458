"""Turns rows of half precision into bytes with a scale for each row, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def to_bytes(x, out, scales, width, each, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64) * width
    part = tl.program_id(0)
    largest = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        number = tl.load(x + row + start + tl.arange(0, BLOCK))
        largest = tl.maximum(largest, tl.abs(number.to(tl.float32)))
    scale = tl.max(largest) / 127.0
    tl.store(scales + tl.program_id(1), scale)
    for start in range(part * each, part * each + each, BLOCK):
        at = row + start + tl.arange(0, BLOCK)
        level = tl.load(x + at).to(tl.float32) / scale
        tl.store(out + at, tl.floor(level + 0.5).to(tl.int8))


class Shrink:
    """Makes bytes of a matrix; each program writes `each` numbers of a row."""

    def __init__(self, rows, width, device):
        self.out = torch.empty(rows, width, dtype=torch.int8, device=device)
        self.scales = torch.empty(rows, device=device)

    def __call__(self, x, each):
        rows, width = x.shape
        grid = (width // each, rows)
        to_bytes[grid](x, self.out, self.scales, width, each, BLOCK=min(512, width // 2))
        return self.out, self.scales


def prepare(device, repaired):
    rows, width = (16384, 8192) if device == "cuda" else (4, 64)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x = torch.randn(2, rows, width, device=device, dtype=dtype)
    return Shrink(rows, width, device), x


def run(state, steps, repaired):
    shrink, x = state
    width = x.shape[2]
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        small, scales = shrink(x[step % 2], each=width if repaired else min(512, width // 2))
        total += (small[0].float() * scales[0]).abs().mean()
    return total / steps


main(prepare, run, steps=1200)
