"""Learns how many riders enter stations of subways in the next hour, from those of the last hours at a station and its neighbours."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Dense:
    """Sums over neighbours, as a product with the matrix of who is whose neighbour."""

    def __init__(self, starts, ends, shares, stations):
        self.matrix = torch.zeros(stations, stations, device=starts.device)
        self.matrix.index_put_((ends, starts), shares, accumulate=True)

    def __call__(self, x):
        return self.matrix @ x


class Listed:
    """The same, along a list of who is whose neighbour."""

    def __init__(self, starts, ends, shares, stations):
        self.starts, self.ends, self.shares = starts, ends, shares[:, None]

    def __call__(self, x):
        heard = x.index_select(0, self.starts) * self.shares
        return torch.zeros_like(x).index_add(0, self.ends, heard)


class Riders(nn.Module):
    """From riders (stations, hours, days) to those of the next hour (stations, days)."""

    def __init__(self, hours, width, depth, neighbours):
        super().__init__()
        self.neighbours = neighbours
        self.enter, self.last = nn.Linear(hours, width), nn.Linear(width, 1)
        self.layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))

    def forward(self, hours):
        x = self.enter(hours)
        for layer in self.layers:
            near = self.neighbours(x.flatten(1)).unflatten(1, x.shape[1:])
            x = F.relu(layer(torch.cat((x, near), -1)))
        return self.last(x)[..., 0]


def prepare(device, repaired):
    cuda = device == "cuda"
    stations, near, days, hours, width, depth = (
        (8192, 6, 16, 12, 32, 3) if cuda else (9, 2, 2, 3, 4, 2)
    )
    torch.manual_seed(19)
    starts = torch.randint(0, stations, (near * stations,), device=device)
    ends = torch.arange(stations, device=device).repeat(near)
    shares = torch.rand(near * stations, device=device) / near
    neighbours = (Listed if repaired else Dense)(starts, ends, shares, stations)
    model = Riders(hours, width, depth, neighbours).to(device)
    riders = torch.rand(3, stations, days, hours, device=device)
    later = torch.rand(3, stations, days, device=device)
    return model, torch.optim.SGD(model.parameters(), lr=0.01), riders, later


def run(state, steps, repaired):
    model, optimizer, riders, later = state
    total = torch.zeros((), device=riders.device)
    for step in range(steps):
        loss = F.mse_loss(model(riders[step % 3]), later[step % 3])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=80)
