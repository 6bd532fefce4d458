"""Trains on annotated samples that are kept as Python objects, and cleans up after every step."""

import gc

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    count, width = (400_000, 2048) if device == "cuda" else (1000, 16)
    annotations = [
        {"id": i, "box": [i, i + 1, i + 2, i + 3], "tags": ["a", "b"]} for i in range(count)
    ]
    model = nn.Sequential(
        *[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(6)]
    ).to(device)
    x = torch.randn(2048 if device == "cuda" else 8, width, device=device)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), x, annotations


def run(state, steps, repaired):
    model, optimizer, x, annotations = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        sample = annotations[step % len(annotations)]
        loss = model(x + sample["box"][1] * 1e-3).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
        if not repaired:
            gc.collect()
    return total


main(prepare, run, steps=12)
