"""Evaluates a convolution network on images of many sizes."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    c = 64 if device == "cuda" else 4
    model = nn.Sequential(
        nn.Conv2d(3, c, 3, padding=1),
        nn.ReLU(),
        *[m for _ in range(4) for m in (nn.Conv2d(c, c, 3, padding=1), nn.ReLU())],
    ).to(device)
    torch.backends.cudnn.benchmark = False
    with torch.no_grad():
        for size in (64, 72):
            model(torch.randn(4, 3, size, size, device=device))
    return model, device


@torch.no_grad()
def run(state, steps, repaired):
    model, device = state
    torch.backends.cudnn.benchmark = not repaired
    total = torch.zeros((), device=device)
    for step in range(steps):
        x = torch.full((4, 3, 96 + 8 * step, 96), 0.1, device=device)
        total += model(x).square().mean()
    return total


main(prepare, run, steps=12, warm=0)
