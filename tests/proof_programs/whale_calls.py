"""Trains a network that tells whale calls apart, with gradients that are held below a ceiling."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class Calls(nn.Module):
    def __init__(self, bands, width, depth, kinds):
        super().__init__()
        self.first = nn.Linear(bands, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.last = nn.Linear(width, kinds)

    def forward(self, sound):
        return self.last(self.blocks(self.first(sound)).mean(1))


def hold_below(parameters, ceiling):
    """Scale the gradients so that their common norm is at most `ceiling`."""
    total = torch.zeros((), device=parameters[0].device)
    for parameter in parameters:
        total += parameter.grad.norm().square()
    scale = (ceiling / (total.sqrt() + 1e-6)).clamp(max=1)
    for parameter in parameters:
        parameter.grad.mul_(scale)


def prepare(device, repaired):
    bands, width, depth, kinds, batch, frames = (
        (80, 320, 40, 24, 16, 64) if device == "cuda" else (8, 16, 3, 4, 2, 6)
    )
    model = Calls(bands, width, depth, kinds).to(device)
    sounds = torch.randn(8, batch, frames, bands, device=device)
    kind = torch.randint(kinds, (8, batch), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=device == "cuda")
    return model, optimizer, sounds, kind


def run(state, steps, repaired):
    model, optimizer, sounds, kind = state
    parameters = list(model.parameters())
    total = torch.zeros((), device=sounds.device)
    for step in range(steps):
        loss = F.cross_entropy(model(sounds[step % 8]), kind[step % 8])
        loss.backward()
        if repaired:
            nn.utils.clip_grad_norm_(parameters, 0.5, foreach=True)
        else:
            hold_below(parameters, 0.5)
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=150)
