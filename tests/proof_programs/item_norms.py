"""Trains a small MLP and logs the gradient norm of every parameter."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width = 1024 if device == "cuda" else 32
    model = nn.Sequential(
        *[layer for _ in range(12) for layer in (nn.Linear(width, width), nn.ReLU())]
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(1024 if device == "cuda" else 8, width, device=device)
    return model, optimizer, x


def run(state, steps, repaired):
    model, optimizer, x = state
    log = []
    for _ in range(steps):
        loss = model(x).square().mean()
        loss.backward()
        norms = []
        for parameter in model.parameters():
            norm = parameter.grad.norm()
            if repaired:
                norms.append(norm)
            else:
                norms.append(norm.item())
        log.append(norms)
        optimizer.step()
        optimizer.zero_grad()
    if repaired:
        return torch.stack([torch.stack(norms) for norms in log]).sum()
    return sum(sum(norms) for norms in log)


main(prepare, run, steps=40)
