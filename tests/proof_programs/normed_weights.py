"""Turns spectra into sound piece by piece, as they come, with the network that was trained."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize


class Block(nn.Module):
    """Two convolutions over time round a residual."""

    def __init__(self, width, taps):
        super().__init__()
        self.a = parametrizations.weight_norm(nn.Conv1d(width, width, taps, padding=taps // 2))
        self.b = parametrizations.weight_norm(nn.Conv1d(width, width, 3, padding=1))

    def forward(self, x):
        return x + self.b(F.leaky_relu(self.a(F.leaky_relu(x, 0.1)), 0.1))


class Vocoder(nn.Module):
    """Blocks of several widths of filters, then samples for each frame."""

    def __init__(self, mels, width, hop):
        super().__init__()
        self.first = parametrizations.weight_norm(nn.Conv1d(mels, width, 7, padding=3))
        self.blocks = nn.ModuleList(Block(width, taps) for taps in (3, 7, 11))
        self.last = parametrizations.weight_norm(nn.Conv1d(width, hop, 7, padding=3))

    def forward(self, mel):
        x = self.first(mel)
        for block in self.blocks:
            x = block(x)
        return torch.tanh(self.last(F.leaky_relu(x, 0.1)))


def settle(module):
    """Keep the weights as they are now instead of making them of lengths and directions."""
    for part in module.modules():
        if parametrize.is_parametrized(part, "weight"):
            parametrize.remove_parametrizations(part, "weight")


def prepare(device, repaired):
    width, frames = (1024, 32) if device == "cuda" else (16, 8)
    vocoder = Vocoder(80, width, 256).to(device).eval()
    if repaired:
        settle(vocoder)
    return vocoder, torch.randn(8, 1, 80, frames, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    vocoder, pieces = state
    total = 0
    for step in range(steps):
        sound = vocoder(pieces[step % len(pieces)])
        total = total + sound.square().mean()
    return total / steps


main(prepare, run, steps=80)
