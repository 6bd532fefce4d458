"""Looks for waves of gravity in strain of detectors: a window, whitening by the known noise, and a small network."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Whitening:
    """Takes the colour of a detector's noise out of strain (batch, samples)."""

    def __init__(self, samples, device, single):
        window = np.hanning(samples)
        waves = np.arange(samples // 2 + 1)
        colour = 1 / np.sqrt(1 + (40.0 / (waves + 1)) ** 4)
        if single:
            window, colour = window.astype(np.float32), colour.astype(np.float32)
        self.window = torch.from_numpy(window).to(device)
        self.colour = torch.from_numpy(colour).to(device)

    def __call__(self, strain):
        strain = strain - strain.mean(-1, keepdim=True)
        spectrum = torch.fft.rfft(strain * self.window)
        white = torch.fft.irfft(spectrum * self.colour, n=strain.shape[-1])
        scale = white.square().mean(-1, keepdim=True).sqrt()
        return (white / scale).clamp(-6, 6)


class Finder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enter = nn.Conv1d(1, width, 64, stride=32)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 5, stride=4) for _ in range(2))
        self.last = nn.Linear(width, 2)

    def forward(self, strain):
        x = F.relu(self.enter(strain[:, None]))
        for conv in self.convs:
            x = F.relu(conv(x))
        return self.last(x.amax(2))


def prepare(device, repaired):
    cuda = device == "cuda"
    events, samples, width = (64, 1 << 18, 16) if cuda else (2, 2048, 4)
    torch.manual_seed(10)
    model = Finder(width).to(device).eval()
    strain = torch.randn(3, events, samples, device=device).cumsum(-1) / 100
    return Whitening(samples, device, single=repaired), model, strain


@torch.inference_mode()
def run(state, steps, repaired):
    whiten, model, strain = state
    total = torch.zeros((), device=strain.device)
    for step in range(steps):
        white = whiten(strain[step % 3]).float()
        loud = white.abs().mean()
        total += model(white).softmax(-1)[:, 1].mean() + loud
    return total / steps


main(prepare, run, steps=800)
