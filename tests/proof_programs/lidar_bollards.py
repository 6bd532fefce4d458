"""Finds bollards in sweeps of a lidar: features of pillars are laid on maps, one for each sweep, that convolutions read."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def maps_one_by_one(features, sweeps, places, count, side):
    """Maps (sweeps, width, side, side) of pillars' features (pillars, width)."""
    maps = []
    for sweep in range(count):
        mine = sweeps == sweep
        here, found = places[mine], features[mine]
        empty = features.new_zeros(features.shape[1], side * side)
        empty[:, here] = found.t()
        maps.append(empty)
    return torch.stack(maps).unflatten(2, (side, side))


def maps_at_once(features, sweeps, places, count, side):
    """The same, of all sweeps together."""
    maps = features.new_zeros(count, features.shape[1], side * side)
    maps[sweeps, :, places] = features
    return maps.unflatten(2, (side, side))


class Detector(nn.Module):
    def __init__(self, numbers, width, lay):
        super().__init__()
        self.lay = lay
        self.pillars = nn.Sequential(nn.Linear(numbers, width), nn.ReLU(), nn.Linear(width, width))
        self.convs = nn.ModuleList(
            nn.Conv2d(width, width, 3, stride=2, padding=1) for _ in range(3)
        )
        self.last = nn.Conv2d(width, 5, 1)

    def forward(self, points, sweeps, places, count, side):
        x = self.lay(self.pillars(points), sweeps, places, count, side)
        for conv in self.convs:
            x = F.relu(conv(x))
        return self.last(x)


def prepare(device, repaired):
    cuda = device == "cuda"
    count, side, pillars, numbers, width = (24, 192, 3000, 10, 32) if cuda else (3, 8, 12, 4, 8)
    torch.manual_seed(6)
    model = Detector(numbers, width, maps_at_once if repaired else maps_one_by_one)
    points = torch.randn(4, count * pillars, numbers, device=device)
    sweeps = torch.arange(count, device=device).repeat_interleave(pillars)
    places = torch.stack(
        [torch.cat([torch.randperm(side**2)[:pillars] for _ in range(count)]) for _ in range(4)]
    )
    return model.to(device).eval(), points, sweeps, places.to(device), count, side


@torch.inference_mode()
def run(state, steps, repaired):
    model, points, sweeps, places, count, side = state
    total = torch.zeros((), device=points.device)
    for step in range(steps):
        found = model(points[step % 4], sweeps, places[step % 4], count, side)
        total += found.square().mean()
    return total / steps


main(prepare, run, steps=200)
