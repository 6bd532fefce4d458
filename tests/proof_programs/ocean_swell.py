"""Foretells the swell of an ocean: layers that weight waves of each length, in the Fourier transform of heights, and mix channels."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Waves(nn.Module):
    """Weights waves by their length, the same in all directions: real fields (fields, channels, side, side)."""

    def __init__(self, channels, side, real):
        super().__init__()
        self.real = real
        across = torch.fft.rfftfreq(side) if real else torch.fft.fftfreq(side)
        length = torch.hypot(torch.fft.fftfreq(side)[:, None], across)
        self.register_buffer("length", length, persistent=False)
        self.reach = nn.Parameter(torch.linspace(2, 30, channels)[:, None, None])

    def forward(self, x):
        shares = (-self.reach * self.length).exp()
        if self.real:
            return torch.fft.irfft2(torch.fft.rfft2(x) * shares, s=x.shape[-2:])
        waves = torch.fft.fft2(x)
        return torch.fft.ifft2(waves * shares).real


class Layer(nn.Module):
    def __init__(self, channels, side, real):
        super().__init__()
        self.waves = Waves(channels, side, real)
        self.mix = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return F.gelu(self.waves(x) + self.mix(x))


def prepare(device, repaired):
    cuda = device == "cuda"
    oceans, channels, side, depth = (8, 32, 512, 4) if cuda else (2, 3, 16, 2)
    torch.manual_seed(18)
    layers = [Layer(channels, side, real=repaired) for _ in range(depth)]
    heights = torch.randn(2, oceans, channels, side, side, device=device)
    return nn.Sequential(*layers).to(device).eval(), heights


@torch.inference_mode()
def run(state, steps, repaired):
    model, heights = state
    total = torch.zeros((), device=heights.device)
    for step in range(steps):
        total += model(heights[step % 2]).square().mean()
    return total / steps


main(prepare, run, steps=60)
