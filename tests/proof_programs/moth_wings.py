"""Learns kinds of moths by pictures of their wings, which lie in memory of the host and are drawn in batches by a loader."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Wings(Dataset):
    """Pictures (3, side, side) of wings in bytes, and kinds of moths."""

    def __init__(self, count, side, kinds, device):
        rng = np.random.default_rng(7)
        self.wings = rng.integers(0, 256, (count, 3, side, side), dtype=np.uint8)
        self.kinds = rng.integers(0, kinds, count)
        self.device = device

    def __len__(self):
        return len(self.wings)

    def __getitem__(self, at):
        wing, kind = torch.from_numpy(self.wings[at]), torch.tensor(self.kinds[at])
        return wing.to(self.device), kind.to(self.device)


class Collector(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU()),
            *(nn.Conv2d(2 * width, 2 * width, 3, 1, 1), nn.BatchNorm2d(2 * width), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, kinds)),
        )

    def forward(self, wings):
        return self.layers(wings.contiguous(memory_format=torch.channels_last).float() / 255)


def forever(loader):
    while True:
        yield from loader


def prepare(device, repaired):
    cuda = device == "cuda"
    count, side, kinds, width, batch = (8192, 64, 40, 64, 256) if cuda else (12, 8, 3, 4, 4)
    wings = Wings(count, side, kinds, "cpu" if repaired else device)
    order = torch.Generator().manual_seed(2)
    loader = DataLoader(
        wings, batch, shuffle=True, generator=order, drop_last=True, pin_memory=cuda and repaired
    )
    torch.manual_seed(2)
    collector = Collector(kinds, width).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(collector.parameters(), lr=1e-4, fused=True)
    return collector, optimizer, forever(loader), device


def run(state, steps, repaired):
    collector, optimizer, batches, device = state
    total = torch.zeros((), device=device)
    for _ in range(steps):
        wings, kinds = next(batches)
        wings, kinds = wings.to(device, non_blocking=True), kinds.to(device, non_blocking=True)
        loss = F.cross_entropy(collector(wings), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=70)
