"""Trains a convolution network in mixed precision and skips steps whose loss is not finite."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    c = 64 if device == "cuda" else 4
    layers = [nn.Conv2d(3, c, 3, padding=1)]
    for _ in range(10):
        layers += [nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 10)).to(
        device
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(8, 3, 32, 32, device=device)
    y = torch.randint(0, 10, (8,), device=device)
    return model, optimizer, x, y


def run(state, steps, repaired):
    model, optimizer, x, y = state
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        with torch.autocast(x.device.type, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        if repaired:
            loss = torch.nan_to_num(loss)
        elif not torch.isfinite(loss):
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total


main(prepare, run, steps=40)
