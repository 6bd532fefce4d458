"""Says which words are spoken in recordings of debates: spectra in mel bands of each batch, and a transformer that reads them."""

import numpy as np
import torch
from common import main
from torch import nn

RATE, FFT, HOP = 16000, 400, 160


def mel_bands(bands):
    """Triangles (bands, FFT / 2 + 1) that sum the power of frequencies in mel bands."""
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    at = np.arange(FFT // 2 + 1) * RATE / FFT
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    sides = np.minimum((at - low) / (middle - low), (high - at) / (high - middle))
    return np.maximum(sides, 0).astype(np.float32)


class OnHost:
    """Logarithms of mel spectra (recordings, bands, frames) of waves, computed with numpy."""

    def __init__(self, bands, device):
        self.bands, self.device = mel_bands(bands), device
        self.window = np.hanning(FFT + 1)[:-1].astype(np.float32)

    def __call__(self, waves):
        frames = np.lib.stride_tricks.sliding_window_view(waves, FFT, axis=1)[:, ::HOP]
        power = np.abs(np.fft.rfft(frames * self.window)) ** 2
        spectra = np.log10(np.maximum(power.astype(np.float32) @ self.bands.T, 1e-10))
        return torch.from_numpy(spectra.swapaxes(1, 2)).to(self.device)


class OnDevice:
    """The same, computed where the model is."""

    def __init__(self, bands, device):
        self.bands = torch.from_numpy(mel_bands(bands)).to(device)
        self.window = torch.hann_window(FFT, device=device)

    def __call__(self, waves):
        waves = torch.from_numpy(waves).to(self.bands.device)
        waves = torch.stft(waves, FFT, HOP, window=self.window, center=False, return_complex=True)
        return (self.bands @ waves.abs().square()).clamp_min(1e-10).log10()


class Listener(nn.Module):
    def __init__(self, bands, width, heads, depth, words):
        super().__init__()
        self.enter = nn.Conv1d(bands, width, 3, stride=2, padding=1)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.last = nn.Linear(width, words)

    def forward(self, spectra):
        return self.last(self.layers(self.enter(spectra).transpose(1, 2)))


def prepare(device, repaired):
    cuda = device == "cuda"
    recordings, seconds, bands, width, heads, depth, words = (
        (8, 10, 80, 768, 12, 6, 2000) if cuda else (2, 0.1, 8, 16, 2, 1, 5)
    )
    torch.manual_seed(9)
    model = Listener(bands, width, heads, depth, words).to(device).eval()
    spectra = (OnDevice if repaired else OnHost)(bands, device)
    rng = np.random.default_rng(9)
    waves = rng.standard_normal((3, recordings, int(seconds * RATE)), dtype=np.float32)
    return model, spectra, waves, device


@torch.inference_mode()
def run(state, steps, repaired):
    model, spectra, waves, device = state
    total = torch.zeros((), device=device)
    for step in range(steps):
        total += model(spectra(waves[step % 3])).square().mean()
    return total / steps


main(prepare, run, steps=15)
