"""Trains a U-shaped network and returns unused memory to the driver after every step."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    c, size = (32, 128) if device == "cuda" else (4, 16)
    down = nn.ModuleList(
        [nn.Conv2d(3 if i == 0 else c << (i - 1), c << i, 3, stride=2, padding=1) for i in range(3)]
    )
    up = nn.ModuleList(
        [
            nn.ConvTranspose2d(c << i, 3 if i == 0 else c << (i - 1), 4, stride=2, padding=1)
            for i in (2, 1, 0)
        ]
    )
    model = nn.ModuleList([down, up]).to(device)
    return (
        model,
        torch.optim.SGD(model.parameters(), lr=1e-4),
        torch.randn(16, 3, size, size, device=device),
    )


def run(state, steps, repaired):
    (down, up), optimizer, x = state
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        h, skips = x, []
        for layer in down:
            skips.append(h)
            h = torch.relu(layer(h))
        for layer in up:
            h = torch.relu(layer(h)) + skips.pop()
        loss = (h - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
        if not repaired and x.is_cuda:
            torch.cuda.empty_cache()
    return total


main(prepare, run, steps=40)
