"""Trains a small model that makes pictures of dunes out of noise: each picture of a batch is mixed with noise at a moment."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Schedule:
    """Moments from 1000 to 1, and how much noise a picture holds at each."""

    def __init__(self, moments, device, compare):
        shares = torch.linspace(1, 1 / moments, moments, device=device)
        self.noise = 3 * shares / (1 + 2 * shares)
        self.times = self.noise * 1000
        self.compare = compare

    def place_of(self, time):
        return int((self.times == time).nonzero()[0])

    def noise_at(self, times):
        if self.compare:
            places = (self.times[None] == times[:, None]).long().argmax(1)
        else:
            places = [self.place_of(time) for time in times]
        return self.noise[places][:, None, None, None]


class Painter(nn.Module):
    """Convolutions that are told the moment."""

    def __init__(self, colours, width, depth):
        super().__init__()
        self.enter = nn.Conv2d(colours, width, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.moments = nn.ModuleList(nn.Linear(64, width) for _ in range(depth))
        self.last = nn.Conv2d(width, colours, 3, padding=1)

    def forward(self, x, times):
        waves = times[:, None] * torch.logspace(0, -4, 32, device=x.device)
        known = torch.cat((waves.sin(), waves.cos()), 1).to(x.dtype)
        x = self.enter(x)
        for conv, moment in zip(self.convs, self.moments, strict=True):
            x = x + conv(F.silu(x + moment(known)[..., None, None]))
        return self.last(x)


def prepare(device, repaired):
    cuda = device == "cuda"
    pictures, side, width, depth, moments = (96, 32, 96, 6, 1000) if cuda else (3, 8, 8, 2, 20)
    torch.manual_seed(7)
    model = Painter(4, width, depth).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    schedule = Schedule(moments, device, compare=repaired)
    seen = torch.randn(4, pictures, 4, side, side, device=device)
    noise = torch.randn(4, pictures, 4, side, side, device=device)
    drawn = torch.randint(moments, (4, pictures), device=device)
    return model, optimizer, schedule, seen, noise, drawn


def run(state, steps, repaired):
    model, optimizer, schedule, seen, noise, drawn = state
    total = torch.zeros((), device=seen.device)
    for step in range(steps):
        k = step % 4
        times = schedule.times[drawn[k]]
        share = schedule.noise_at(times)
        mixed = (1 - share) * seen[k] + share * noise[k]
        loss = F.mse_loss(model(mixed, times), noise[k] - seen[k])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=120)
