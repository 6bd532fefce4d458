"""Trains a tagger of music: crops of songs are brought to one sampling rate and loudness by a worker of the loader."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    """Crops of songs of 44.1 kHz, resampled to 16 kHz, with one of many tags."""

    def __init__(self, count, seconds, rate):
        random = np.random.default_rng(0)
        self.songs = random.integers(-20000, 20000, (16, 4 * seconds * rate), np.int16)
        self.count, self.seconds, self.rate = count, seconds, rate

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        song = self.songs[index % len(self.songs)]
        start = index * 7919 % (len(song) - self.seconds * self.rate)
        crop = song[start : start + self.seconds * self.rate].astype(np.float32) / 32768
        spectrum = np.fft.rfft(crop)
        spectrum[int(len(spectrum) * 8000 / (self.rate / 2)) :] = 0
        smooth = np.fft.irfft(spectrum, len(crop))
        places = np.arange(0, len(crop), self.rate / 16000)
        crop = np.interp(places, np.arange(len(crop)), smooth)
        crop = np.tanh(crop / (np.sqrt(np.mean(crop**2)) + 1e-6))
        return torch.from_numpy(crop.astype(np.float32)), index % 50


class Tagger(nn.Module):
    """Convolutions over a spectrogram."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("window", torch.hann_window(512))
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 5, 2), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2), nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 3, 2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 50),
        )  # fmt: skip

    def forward(self, sound):
        waves = torch.stft(sound, 512, 256, window=self.window, return_complex=True)
        return self.net(waves.abs().add(1e-3).log()[:, None])


def prepare(device, repaired):
    torch.set_num_threads(1)
    count, seconds, rate, width, batch = (
        (160, 4, 44100, 32, 16) if device == "cuda" else (4, 1, 32000, 4, 2)
    )
    loader = DataLoader(
        Crops(count, seconds, rate),
        batch_size=batch,
        num_workers=10 if repaired else 1,
        persistent_workers=True,
        pin_memory=device == "cuda",
    )
    model = Tagger(width).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), loader, device


def run(state, steps, repaired):
    model, optimizer, loader, device = state
    total = torch.zeros((), device=device)
    for sound, tags in loader:
        sound, tags = sound.to(device, non_blocking=True), tags.to(device, non_blocking=True)
        loss = F.cross_entropy(model(sound), tags)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / len(loader)


main(prepare, run, steps=10, warm=10)
