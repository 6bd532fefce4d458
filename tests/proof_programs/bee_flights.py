"""Learns from tracks of bees, as cameras above a meadow write them down, which flower a bee will fly to."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Tracks:
    """Flights of bees: an array (moments, numbers) of each, as the tracker gave it."""

    def __init__(self, flights, moments, numbers, flowers):
        chance = np.random.default_rng(11)
        self.flights = [
            chance.standard_normal((moments, numbers)).cumsum(0).astype(np.float32) / 8
            for _ in range(flights)
        ]
        self.flowers = chance.integers(0, flowers, flights)

    def batch(self, step, size):
        chance = np.random.default_rng(step)
        picked = chance.integers(0, len(self.flights), size)
        return [self.flights[k] for k in picked], self.flowers[picked]


class Guess(nn.Module):
    def __init__(self, numbers, width, flowers):
        super().__init__()
        self.enter = nn.Conv1d(numbers, width, 5, padding=2)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2) for _ in range(4))
        self.last = nn.Linear(width, flowers)

    def forward(self, flights):
        x = self.enter(flights.transpose(1, 2))
        for conv in self.convs:
            x = x + conv(F.relu(x))
        return self.last(x.amax(2))


def as_tensor(flights, repaired):
    if repaired:
        flights = np.stack(flights)
    return torch.tensor(flights, dtype=torch.float32)


def prepare(device, repaired):
    cuda = device == "cuda"
    flights, moments, numbers, flowers, width, batch = (
        (4000, 64, 12, 20, 192, 64) if cuda else (8, 10, 3, 4, 8, 3)
    )
    tracks = Tracks(flights, moments, numbers, flowers)
    torch.manual_seed(8)
    model = Guess(numbers, width, flowers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return tracks, model, optimizer, batch, device


def run(state, steps, repaired):
    tracks, model, optimizer, batch, device = state
    total = torch.zeros((), device=device)
    for step in range(steps):
        flights, flowers = tracks.batch(step, batch)
        seen = as_tensor(flights, repaired).to(device)
        loss = F.cross_entropy(model(seen), torch.from_numpy(flowers).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=40)
