"""Trains a vocoder on songs sung alone: from the loudness of bands, which the host keeps, back to the sound."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Songs:
    """Recordings of different lengths, with the loudness of their bands in each window."""

    def __init__(self, count, bands, windows, hop, seed):
        draw = np.random.default_rng(seed)
        self.windows, self.hop = windows, hop
        self.sounds, self.loudness = [], []
        for _ in range(count):
            length = int(draw.integers(2 * windows, 4 * windows))
            self.sounds.append(draw.standard_normal(length * hop, dtype=np.float32))
            self.loudness.append(draw.standard_normal((bands, length), dtype=np.float32))

    def batch(self, picks, starts):
        """Return cuts of songs and of their bands as lists of arrays."""
        sounds, bands = [], []
        for song, start in zip(picks, starts, strict=True):
            at = start % (self.loudness[song].shape[1] - self.windows)
            bands.append(self.loudness[song][:, at : at + self.windows])
            sounds.append(self.sounds[song][at * self.hop : (at + self.windows) * self.hop])
        return sounds, bands


class Vocoder(nn.Module):
    def __init__(self, bands, width, hop):
        super().__init__()
        self.first = nn.Conv1d(bands, width, 7, padding=3)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(6))
        self.last = nn.Conv1d(width, hop, 1)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(F.leaky_relu(x, 0.1))
        return torch.tanh(self.last(x)).transpose(1, 2).flatten(1)


def collate(sounds, bands, repaired):
    if repaired:
        return torch.from_numpy(np.stack(sounds)), torch.from_numpy(np.stack(bands))
    return torch.tensor(sounds, dtype=torch.float), torch.tensor(bands, dtype=torch.float)


def prepare(device, repaired):
    cuda = device == "cuda"
    songs, batch, bands, windows, hop, width = (
        (64, 16, 20, 32, 64, 256) if cuda else (4, 2, 3, 6, 4, 8)
    )
    data = Songs(songs, bands, windows, hop, seed=3)
    model = Vocoder(bands, width, hop).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=cuda)
    return data, model, optimizer, songs, batch, device


def run(state, steps, repaired):
    data, model, optimizer, songs, batch, device = state
    total = torch.zeros((), device=device)
    draw = np.random.default_rng(steps)
    for _ in range(steps):
        picks, starts = draw.integers(songs, size=batch), draw.integers(10_000, size=batch)
        sounds, bands = collate(*data.batch(picks, starts), repaired)
        sounds, bands = sounds.to(device), bands.to(device)
        loss = F.l1_loss(model(bands), sounds)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=24)
