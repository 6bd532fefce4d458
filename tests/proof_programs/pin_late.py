"""Feeds a network from arrays in ordinary memory, and pins each batch just before it is sent."""

import torch
from common import main


def prepare(device, repaired):
    batch, width = (4096, 4096) if device == "cuda" else (4, 8)
    batches = [torch.randn(batch, width) for _ in range(4)]
    if repaired and device == "cuda":
        batches = [one.pin_memory() for one in batches]
    return batches, torch.randn(width, width, device=device) / width**0.5, device


def run(state, steps, repaired):
    batches, weight, device = state
    total = torch.zeros((), device=device)
    for step in range(steps):
        x = batches[step % 4]
        if not repaired and device == "cuda":
            x = x.pin_memory()
        x = x.to(device, non_blocking=True)
        total += torch.relu(x @ weight).mean()
    return total


main(prepare, run, steps=24)
