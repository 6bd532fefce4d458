"""Draws boats in canal locks: a network that draws and one that judges teach each other, and losses are written down."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def drawer(noise, width):
    return nn.Sequential(
        *(nn.Linear(noise, width * 16), nn.Unflatten(1, (width, 4, 4)), nn.ReLU()),
        *(nn.ConvTranspose2d(width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU()),
        *(nn.ConvTranspose2d(width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU()),
        *(nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh()),
    )


def judge(width):
    return nn.Sequential(
        *(nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(width, width, 4, 2, 1), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(width, width, 4, 2, 1), nn.LeakyReLU(0.2)),
        *(nn.Flatten(), nn.Linear(width * 16, 1)),
    )


class Journal:
    """Sums of losses by name, read at the end of an epoch."""

    def __init__(self, at_once):
        self.at_once, self.sums = at_once, {}

    def note(self, name, loss):
        value = loss.item() if self.at_once else loss.detach()
        self.sums[name] = self.sums.get(name, 0) + value

    def total(self):
        return float(sum(self.sums.values()))


def prepare(device, repaired):
    cuda = device == "cuda"
    noise, width, batch = (128, 128, 128) if cuda else (4, 4, 3)
    torch.manual_seed(4)
    draws, judges = drawer(noise, width).to(device), judge(width).to(device)
    optimizers = [torch.optim.Adam(net.parameters(), lr=2e-5) for net in (draws, judges)]
    boats = torch.rand(4, batch, 3, 32, 32, device=device) * 2 - 1
    noises = torch.randn(4, batch, noise, device=device)
    return draws, judges, optimizers, boats, noises


def run(state, steps, repaired):
    draws, judges, (drawing, judging), boats, noises = state
    journal = Journal(at_once=not repaired)
    for step in range(steps):
        real, noise = boats[step % 4], noises[step % 4]
        drawn = draws(noise)
        on_real = F.softplus(-judges(real)).mean()
        journal.note("real", on_real)
        on_drawn = F.softplus(judges(drawn.detach())).mean()
        journal.note("drawn", on_drawn)
        judging.zero_grad()
        (on_real + on_drawn).backward()
        judging.step()
        fooled = F.softplus(-judges(drawn)).mean()
        journal.note("fooled", fooled)
        drawing.zero_grad()
        fooled.backward()
        drawing.step()
    return journal.total() / steps


main(prepare, run, steps=150)
