"""Trains a forecast of electric load on windows of a long recording that lies in a file."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Forecast(nn.Module):
    """Dilated convolutions over time that see only what was before (TCN)."""

    def __init__(self, channels, width, depth):
        super().__init__()
        self.inward = nn.Conv1d(channels, width, 1)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, width, 3, dilation=2**level) for level in range(depth)
        )
        self.out = nn.Conv1d(width, channels, 1)

    def forward(self, x):
        h = self.inward(x)
        for layer in self.layers:
            h = h + torch.relu(layer(F.pad(h, (2 * layer.dilation[0], 0))))
        return self.out(h)


class Windows:
    """Windows of a recording, by where they begin."""

    def __init__(self, path, length, mapped):
        self.path, self.length = path, length
        self.mode = "r" if mapped else None

    def __getitem__(self, start):
        series = np.load(self.path, mmap_mode=self.mode)
        return series[start : start + self.length + 1]


def prepare(device, repaired):
    times, length, width, depth, batch = (
        (750_000, 1024, 128, 8, 24) if device == "cuda" else (4000, 32, 8, 2, 2)
    )
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "load.npy"
    random = np.random.default_rng(0)
    np.save(path, random.standard_normal((times, 4), dtype=np.float32))
    model = Forecast(4, width, depth).to(device)
    optimizer = torch.optim.Adam(model.parameters(), fused=True if device == "cuda" else None)
    return model, optimizer, Windows(path, length, repaired), times, batch, device, folder


def run(state, steps, repaired):
    model, optimizer, windows, times, batch, device, _ = state
    random = np.random.default_rng(1)
    total = 0
    for _ in range(steps):
        starts = random.integers(0, times - windows.length - 1, batch)
        x = torch.from_numpy(np.stack([windows[start] for start in starts])).to(device)
        x = x.transpose(1, 2)
        loss = F.mse_loss(model(x[..., :-1]), x[..., 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = total + loss.detach()
    return total / steps


main(prepare, run, steps=4)
