"""Follows light of four colours through mirrors of a telescope: from plane to plane by Fourier transforms, each cut by a rim."""

import numpy as np
import torch
from common import main


def ways(colours, side, planes, number):
    """What each wave of a field goes through between planes (planes, colours, side, side)."""
    turns = np.fft.fftfreq(side) ** 2
    lengths = 30.0 + 7.0 * np.arange(planes)
    phases = np.pi * lengths[:, None] / np.asarray(colours)
    along = np.exp(-1j * phases[..., None] * turns).astype(number)
    return along[..., :, None] * along[..., None, :]


class Telescope:
    """Mirrors that a field (colours, side, side) meets in turn."""

    def __init__(self, colours, side, planes, number, device):
        self.ways = torch.from_numpy(ways(colours, side, planes, number)).to(device)
        at = torch.linspace(-1, 1, side, device=device)
        self.rim = (at.square()[:, None] + at.square() < 0.9).float()

    def pass_on(self, field, plane):
        waves = torch.fft.fft2(field) * self.ways[plane % len(self.ways)]
        return torch.fft.ifft2(waves) * self.rim


def prepare(device, repaired):
    cuda = device == "cuda"
    side, planes = (2048, 2) if cuda else (16, 2)
    number = np.complex64 if repaired else np.complex128
    telescope = Telescope((0.4, 0.5, 0.6, 0.7), side, planes, number, device)
    torch.manual_seed(9)
    light = torch.randn(4, side, side, dtype=torch.complex64, device=device)
    return telescope, light


@torch.inference_mode()
def run(state, steps, repaired):
    telescope, light = state
    field = light
    for step in range(steps):
        field = telescope.pass_on(field, step)
    return field.abs().square().mean()


main(prepare, run, steps=400)
