"""Judges synthetic speech: its loudness in several resolutions, compared with a recording."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

WINDOWS = (480, 640, 960, 1280, 1920, 2560)


class Voice(nn.Module):
    """Makes sound from mel spectra: transposed convolutions, each with a residual block."""

    def __init__(self, mels, width, factors):
        super().__init__()
        self.first = nn.Conv1d(mels, width, 7, padding=3)
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for factor in factors:
            self.ups.append(nn.ConvTranspose1d(width, width // 2, 2 * factor, factor, factor // 2))
            width //= 2
            self.blocks.append(nn.Conv1d(width, width, 3, padding=1))
        self.last = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, mel):
        x = self.first(mel)
        for up, block in zip(self.ups, self.blocks, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            x = x + block(F.leaky_relu(x, 0.1))
        return torch.tanh(self.last(F.leaky_relu(x, 0.1)))[:, 0]


def prepare(device, repaired):
    batch, frames, width = (32, 256, 128) if device == "cuda" else (2, 32, 32)
    voice = Voice(80, width, (8, 8, 4)).to(device).eval()
    windows = [torch.hann_window(window, device=device) for window in WINDOWS]
    mel = torch.randn(batch, 80, frames, device=device)
    return voice, windows, mel, torch.randn(batch, 256 * frames, device=device)


def keep_plans(device, number):
    """Plans of transforms hold memory, so somebody let the library keep few of them."""
    if device.type == "cuda":
        torch.backends.cuda.cufft_plan_cache[0].max_size = number


def loudness(sound, window):
    size = len(window)
    spectrum = torch.stft(sound, size, size // 4, window=window, return_complex=True)
    return spectrum.abs().clamp(min=1e-5).log()


def difference(made, recorded, windows):
    """Return how much the loudness differs, over all resolutions."""
    total = 0
    for window in windows:
        total = total + F.l1_loss(loudness(made, window), loudness(recorded, window))
    return total / len(windows)


@torch.inference_mode()
def run(state, steps, repaired):
    voice, windows, mel, recorded = state
    keep_plans(mel.device, 64 if repaired else 1)
    total = 0
    for _ in range(steps):
        total = total + difference(voice(mel), recorded, windows)
    return total / steps


main(prepare, run, steps=15, warm=15)
