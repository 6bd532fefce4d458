"""Puts recordings into a room: convolves them with its long response, by Fourier transforms."""

import torch
from common import main


def prepare(device, repaired):
    batch, length, response = (64, 480_000, 44_310) if device == "cuda" else (2, 80, 22)
    dry = torch.randn(batch, length, device=device)
    room = torch.randn(response, device=device) * torch.linspace(1, 0, response, device=device)
    return dry, room


def quick(length):
    """Return the next length on that has no other factors than 2, 3, 5 and 7."""
    while True:
        rest = length
        for factor in (2, 3, 5, 7):
            while rest % factor == 0:
                rest //= factor
        if rest == 1 and length % 2 == 0:
            return length
        length += 1


@torch.inference_mode()
def run(state, steps, repaired):
    dry, room = state
    length = dry.shape[1] + len(room) - 1
    n = quick(length) if repaired else length
    for _ in range(steps):
        spectrum = torch.fft.rfft(dry, n)
        spectrum *= torch.fft.rfft(room, n)
        wet = torch.fft.irfft(spectrum, n)[:, :length]
    return wet.abs().mean()


main(prepare, run, steps=10)
