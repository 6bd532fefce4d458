"""Trains a forecaster of storm surges: windows of records of tide gauges, made plausible anew each time they are drawn."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Surges(Dataset):
    """Windows of water levels: the tide is taken out, gaps are filled, and some noise is added."""

    def __init__(self, count, length):
        random = np.random.default_rng(7)
        self.records = random.normal(size=(40, 6 * length)).astype(np.float32).cumsum(1) / 20
        self.hours = np.arange(length)
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        record = self.records[index % len(self.records)]
        start = index * 2654435761 % (5 * self.length - 24)
        window = record[start : start + self.length].astype(np.float64)
        random = np.random.default_rng(index)
        gone = random.random(self.length) < 0.03
        window = np.interp(self.hours, self.hours[~gone], window[~gone])
        spectrum = np.fft.rfft(window - window.mean())
        spectrum[self.length // 25 : self.length // 23] = 0
        spectrum[self.length // 13 : self.length // 12] = 0
        calm = np.fft.irfft(spectrum, self.length)
        noise = np.convolve(random.normal(size=self.length), np.hanning(25), "same")
        calm = calm / (calm.std() + 1e-6) + 0.01 * noise
        surge = record[start + self.length : start + self.length + 24]
        return torch.from_numpy(calm.astype(np.float32)), torch.from_numpy(surge.copy())


class Forecaster(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.first = nn.Conv1d(1, width, 9, padding=4)
        self.blocks = nn.ModuleList(
            nn.Conv1d(width, width, 9, padding=4 * 2**i, dilation=2**i) for i in range(depth)
        )
        self.last = nn.Linear(width, 24)

    def forward(self, levels):
        x = self.first(levels[:, None])
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.last(x.mean(2))


def prepare(device, repaired):
    torch.set_num_threads(1)
    count, length, width, depth, batch = (
        (2560, 4096, 64, 4, 32) if device == "cuda" else (8, 512, 4, 2, 4)
    )
    workers = 8 if repaired else 0
    loader = DataLoader(
        Surges(count, length),
        batch_size=batch,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=device == "cuda",
    )
    model = Forecaster(width, depth).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=device == "cuda")
    return model, optimizer, loader, device


def run(state, steps, repaired):
    model, optimizer, loader, device = state
    total = torch.zeros((), device=device)
    for levels, surge in loader:
        levels = levels.to(device, non_blocking=True)
        surge = surge.to(device, non_blocking=True)
        loss = (model(levels) - surge).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / len(loader)


main(prepare, run, steps=80, warm=80)
