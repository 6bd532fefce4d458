"""Sends the samples of each batch to the GPU one by one and stacks them there."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    number, width = (2048, 1024) if device == "cuda" else (16, 8)
    samples = torch.randn(number, width)
    if device == "cuda":
        samples = samples.pin_memory()
    body = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
    return samples, body, device


@torch.no_grad()
def run(state, steps, repaired):
    samples, body, device = state
    total = torch.zeros((), device=device)
    for _ in range(steps):
        if repaired:
            x = samples.to(device, non_blocking=True)
        else:
            x = torch.stack([sample.to(device, non_blocking=True) for sample in samples])
        total += body(x).square().mean()
    return total


main(prepare, run, steps=12)
