"""Hears from the sound of engines which of their parts is worn, by pictures of their frequencies (log mel)."""

import math

import torch
from common import main
from torch import nn


class Pictures(nn.Module):
    """Frequencies of a sound over time, where the sound lies or on another device."""

    def __init__(self, size, bands, device):
        super().__init__()
        self.size = size
        self.register_buffer("window", torch.hann_window(size, device=device))
        steps = torch.arange(size // 2 + 1, device=device)[None] / (size // 2)
        centres = torch.linspace(0.0, 1.0, bands, device=device)[:, None] ** 1.5
        self.register_buffer("bank", (1 - (steps - centres).abs() * bands / 2).clamp(min=0))

    def forward(self, sounds):
        parts = torch.stft(
            sounds, self.size, self.size // 4, window=self.window, return_complex=True
        )
        power = parts.real.square() + parts.imag.square()
        return torch.log(self.bank @ power + 1e-3)


class Wear(nn.Module):
    def __init__(self, width, parts):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.last = nn.Linear(width, parts)

    def forward(self, pictures):
        return self.last(self.layers(pictures[:, None]).mean((2, 3)))


def prepare(device, repaired):
    count, length, size, bands, width = (
        (64, 96000, 1024, 80, 192) if device == "cuda" else (2, 800, 64, 8, 4)
    )
    pictures = Pictures(size, bands, device if repaired else "cpu")
    time = torch.arange(length) / 16000
    sounds = torch.stack(
        [torch.sin(2 * math.pi * (90 + 7 * k) * time * (1 + time / 9)) for k in range(count)]
    )
    sounds = torch.stack([sounds + 0.1 * torch.randn_like(sounds) for _ in range(3)])
    model = Wear(width, 12).to(device).eval()
    return model, pictures, sounds.pin_memory() if device == "cuda" else sounds, device


@torch.inference_mode()
def run(state, steps, repaired):
    model, pictures, sounds, device = state
    total = torch.zeros((), device=device)
    for step in range(steps):
        heard = sounds[step % 3]
        if repaired:
            seen = pictures(heard.to(device, non_blocking=True))
        else:
            seen = pictures(heard).to(device)
        total += model(seen).square().mean()
    return total / steps


main(prepare, run, steps=50)
