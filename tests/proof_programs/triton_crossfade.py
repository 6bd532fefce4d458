"""Fades one film into another: rows of bytes of both are mixed, with a kernel in Triton that is compiled once for all sizes."""

import torch
import triton
import triton.language as tl
from common import main


def rows_of_bytes(first, second, mixed, share, pitch, width, even, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < width
        at = row * pitch + column
        old = tl.load(first + at, mask=inside, other=0).to(tl.float32)
        new = tl.load(second + at, mask=inside, other=0).to(tl.float32)
        light = old + (new - old) * share + even
        tl.store(mixed + at, light.to(tl.uint8), mask=inside)


fade = triton.jit(rows_of_bytes)
fade_any = triton.jit(rows_of_bytes, do_not_specialize=["pitch", "width"])


class Mixer:
    """Two films of the same size; rows begin at multiples of 16 bytes."""

    def __init__(self, pictures, height, width, device):
        shape = pictures, height, -(-width // 16) * 16
        self.first = torch.randint(256, shape, device=device, dtype=torch.uint8)
        self.second = torch.randint(256, shape, device=device, dtype=torch.uint8)
        self.mixed = torch.zeros_like(self.first)
        self.width = width

    def fade(self, share, aligned):
        pictures, height, pitch = self.mixed.shape
        kernel = fade if aligned else fade_any
        kernel[(pictures * height,)](
            self.first, self.second, self.mixed, share, pitch, self.width, 0.5, BLOCK=2048
        )
        return self.mixed


def prepare(device, repaired):
    return Mixer(*((48, 2160, 3840) if device == "cuda" else (2, 3, 48)), device)


def run(state, steps, repaired):
    total = torch.zeros((), device=state.mixed.device)
    for step in range(steps):
        mixed = state.fade((step % 16) / 16, aligned=repaired)
        total += mixed[0, 0].float().mean()
    return total / steps


main(prepare, run, steps=1500)
