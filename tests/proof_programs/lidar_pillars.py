"""Finds cars in sweeps of a lidar: points are counted and summed in pillars of a map, and convolutions look at the map."""

import math

import torch
from common import main
from torch import nn


def turn_matrix(angle, device):
    """Return the matrix that turns points about the upright axis."""
    sin, cos = math.sin(angle), math.cos(angle)
    return torch.tensor([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]], device=device)


class Pillars:
    """A square map whose cells know how many points they hold, and how high and how bright these are."""

    def __init__(self, side, reach, early):
        self.side, self.reach, self.early = side, reach, early

    def cells(self, points):
        spot = ((points[:, :2] / self.reach + 1) * (self.side / 2)).floor()
        inside = (spot >= 0).all(1) & (spot < self.side).all(1)
        spot = spot.clamp(0, self.side - 1).long()
        return spot[:, 1] * self.side + spot[:, 0], inside

    def count(self, cells, weight):
        """Return how many points are in each cell."""
        if self.early:
            counts = weight.new_zeros(self.side**2)
            return counts.scatter_add_(0, cells, weight)
        return torch.bincount(cells, weights=weight, minlength=self.side**2)

    def features(self, points):
        cells, inside = self.cells(points)
        weight = inside.to(points.dtype)
        counts = self.count(cells, weight)
        sums = points.new_zeros(self.side**2, 2).index_add_(
            0, cells, points[:, 2:] * weight[:, None]
        )
        means = sums / counts.clamp(min=1)[:, None]
        return torch.cat([counts.log1p()[:, None], means], 1).T.unflatten(1, (self.side, -1))


class Detector(nn.Module):
    def __init__(self, inputs, width, depth):
        super().__init__()
        self.first = nn.Conv2d(inputs, width, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.last = nn.Conv2d(width, 8, 1)

    def forward(self, view):
        x = torch.relu(self.first(view))
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.last(x)


def prepare(device, repaired):
    points, side, width, depth = (60000, 256, 128, 10) if device == "cuda" else (500, 16, 4, 1)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    detector = Detector(4 * 3, width, depth).to(device, dtype, memory_format=torch.channels_last)
    sweeps = torch.randn(8, points, 4, device=device) * torch.tensor(
        [20, 20, 1, 0.3], device=device
    )
    turns = [turn_matrix(0.02 * k, device) for k in range(4)]
    return Pillars(side, 50.0, early=repaired), detector.eval(), sweeps, turns, dtype


@torch.inference_mode()
def run(state, steps, repaired):
    pillars, detector, sweeps, turns, dtype = state
    total = torch.zeros((), device=sweeps.device)
    for step in range(steps):
        views = []
        for past, turn in enumerate(turns):
            sweep = sweeps[(step + past) % len(sweeps)]
            moved = torch.cat([sweep[:, :3] @ turn, sweep[:, 3:]], 1)
            views.append(pillars.features(moved))
        view = torch.cat(views)[None].to(dtype).contiguous(memory_format=torch.channels_last)
        total += detector(view).float().square().mean()
    return total / steps


main(prepare, run, steps=900)
