"""Scores images with a small convolution network; the batches come from ordinary host memory."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    size, batch = (224, 128) if device == "cuda" else (16, 2)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 7, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    batches = [torch.randn(batch, 3, size, size) for _ in range(4)]
    if repaired and device == "cuda":
        batches = [batch.pin_memory() for batch in batches]
    return model.to(device), batches, device


@torch.no_grad()
def run(state, steps, repaired):
    model, batches, device = state
    total = torch.zeros((), device=device)
    for step in range(steps):
        x = batches[step % len(batches)].to(device, non_blocking=True)
        total += model(x).square().mean()
    return total


main(prepare, run, steps=40)
