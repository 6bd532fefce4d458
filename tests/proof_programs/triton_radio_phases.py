"""Brings radio signals, complex numbers of two halves each, back to the phase of their sender, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def turn_parts(signals, turns, turned, samples, BLOCK: tl.constexpr):
    channel = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    begin = channel.to(tl.int64) * samples * 2
    real = tl.load(signals + begin + 2 * at).to(tl.float32)
    imaginary = tl.load(signals + begin + 2 * at + 1).to(tl.float32)
    across, along = tl.load(turns + 2 * channel), tl.load(turns + 2 * channel + 1)
    tl.store(turned + begin + 2 * at, (real * across - imaginary * along).to(tl.float16))
    tl.store(turned + begin + 2 * at + 1, (real * along + imaginary * across).to(tl.float16))


@triton.jit
def turn_pairs(signals, turns, turned, samples, BLOCK: tl.constexpr):
    channel = tl.program_id(1)
    at = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    begin = channel.to(tl.int64) * samples * 2
    pairs = tl.load(signals + begin + at).to(tl.float32)
    real, imaginary = tl.split(tl.reshape(pairs, (BLOCK, 2)))
    across, along = tl.load(turns + 2 * channel), tl.load(turns + 2 * channel + 1)
    both = tl.join(real * across - imaginary * along, real * along + imaginary * across)
    tl.store(turned + begin + at, tl.reshape(both, (2 * BLOCK,)).to(tl.float16))


class Turn:
    """Takes real and imaginary parts apart when they are loaded, or after that."""

    def __init__(self, pairs, block):
        self.pairs, self.block = pairs, block

    def __call__(self, signals, turns):
        channels, samples, _ = signals.shape
        turned = torch.empty_like(signals)
        turn = turn_pairs if self.pairs else turn_parts
        turn[(samples // self.block, channels)](
            signals, turns, turned, samples, BLOCK=self.block, num_warps=4
        )
        return turned


def prepare(device, repaired):
    channels, samples, block = (64, 1 << 20, 1024) if device == "cuda" else (2, 64, 32)
    signals = torch.randn(channels, samples, 2, device=device).half()
    angles = torch.rand(channels, device=device) * 6.28
    return Turn(repaired, block), signals, torch.stack([angles.cos(), angles.sin()], 1)


def run(state, steps, repaired):
    turn, signals, turns = state
    for _ in range(steps):
        turned = turn(signals, turns)
    return (
        (turned[:, :4096].float() * torch.tensor([1.0, 2.0], device=turned.device)).square().mean()
    )


main(prepare, run, steps=3000)
