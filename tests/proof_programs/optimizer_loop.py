"""Trains a network of many small layers with Adam."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width, layers = (128, 60) if device == "cuda" else (8, 4)
    model = nn.Sequential(
        *[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)]
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=repaired)
    return model, optimizer, torch.randn(256, width, device=device)


def run(state, steps, repaired):
    model, optimizer, x = state
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total


main(prepare, run, steps=8)
