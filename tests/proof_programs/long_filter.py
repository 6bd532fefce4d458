"""Models music with long filters: each channel is convolved with a response of thousands of samples."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class LongFilter(nn.Module):
    """A causal filter for each channel, given by decaying sines."""

    def __init__(self, width, taps, by_transform):
        super().__init__()
        at = torch.arange(taps)
        speed = torch.rand(width, 1) * 0.5
        decay = torch.exp(-at * 8 / taps)
        self.response = nn.Parameter(torch.sin(at * speed) * decay / taps**0.5)
        self.by_transform = by_transform

    def forward(self, x):
        width, taps = self.response.shape
        if self.by_transform:
            size = x.shape[-1] + taps
            spectrum = torch.fft.rfft(x, size) * torch.fft.rfft(self.response, size)
            return torch.fft.irfft(spectrum, size)[..., : x.shape[-1]]
        weight = self.response.flip(1)[:, None]
        return F.conv1d(F.pad(x, (taps - 1, 0)), weight, groups=width)


class Block(nn.Module):
    """A long filter with a gate, and a mix of the channels."""

    def __init__(self, width, taps, by_transform):
        super().__init__()
        self.norm = nn.GroupNorm(1, width)
        self.filter = LongFilter(width, taps, by_transform)
        self.gate, self.mix = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)

    def forward(self, x):
        y = self.norm(x)
        return x + self.mix(self.filter(y) * torch.sigmoid(self.gate(y)))


def prepare(device, repaired):
    width, taps, batch, length, depth = (
        (256, 1024, 8, 7168, 3) if device == "cuda" else (4, 16, 2, 48, 2)
    )
    model = nn.Sequential(*(Block(width, taps, repaired) for _ in range(depth)))
    return model.to(device).eval(), torch.randn(batch, width, length, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, x = state
    for _ in range(steps):
        y = model(x)
    return y.square().mean()


main(prepare, run, steps=6)
