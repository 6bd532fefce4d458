"""Foretells how high water will stand in the wells of a country, hour by hour, from wells around them."""

import torch
from common import main
from torch import nn


class Wells:
    """Which wells touch each other, and how much: rows of a sparse matrix, with a loop at each."""

    def __init__(self, count, around, device):
        ends = torch.randint(count, (count * around,), device=device)
        columns = torch.cat((ends, torch.arange(count, device=device)))
        rows = torch.arange(count, device=device)
        rows = torch.cat((rows.repeat_interleave(around), rows))
        keys = (rows * count + columns).unique()
        self.rows, self.columns, self.count = keys // count, keys % count, count
        self.weights = 0.1 + torch.rand(len(keys), device=device)
        starts = torch.bincount(self.rows, minlength=count).cumsum(0)
        self.starts = torch.cat((starts.new_zeros(1), starts))

    def matrix(self, weights):
        return torch.sparse_csr_tensor(
            self.starts, self.columns, weights, size=(self.count, self.count)
        )


def balanced(wells):
    degrees = torch.zeros(wells.count, device=wells.weights.device)
    degrees.index_add_(0, wells.rows, wells.weights)
    scale = degrees.pow(-0.5)
    scale.masked_fill_(scale == float("inf"), 0.0)
    return wells.matrix(scale[wells.rows] * wells.weights * scale[wells.columns])


class Flow(nn.Module):
    def __init__(self, width, cached):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.cached, self.known = cached, None

    def forward(self, x, wells):
        links = self.known
        if links is None:
            links = balanced(wells)
            if self.cached:
                self.known = links
        return links @ self.linear(x)


class Forecast(nn.Module):
    def __init__(self, inputs, width, depth, cached):
        super().__init__()
        self.enter, self.last = nn.Linear(inputs, width), nn.Linear(width, 1)
        self.flows = nn.ModuleList(Flow(width, cached) for _ in range(depth))

    def forward(self, readings, wells):
        x = torch.relu(self.enter(readings))
        for flow in self.flows:
            x = torch.relu(flow(x, wells))
        return self.last(x)[:, 0]


def prepare(device, repaired):
    count, around, inputs, width, depth = (
        (200000, 15, 8, 16, 4) if device == "cuda" else (20, 3, 3, 8, 2)
    )
    wells = Wells(count, around, device)
    model = Forecast(inputs, width, depth, cached=repaired).to(device).eval()
    return model, wells, torch.randn(4, count, inputs, device=device)


@torch.no_grad()
def run(state, steps, repaired):
    model, wells, readings = state
    total = torch.zeros((), device=readings.device)
    for hour in range(steps):
        total += model(readings[hour % len(readings)], wells).mean()
    return total / steps


main(prepare, run, steps=500)
