"""Fits a two-tower model and prints the loss after every step."""

import sys

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width = 768 if device == "cuda" else 16
    towers = nn.ModuleList(
        [
            nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(6)])
            for _ in range(2)
        ]
    ).to(device)
    optimizer = torch.optim.SGD(towers.parameters(), lr=1e-3)
    pairs = torch.randn(2, 2048 if device == "cuda" else 8, width, device=device)
    return towers, optimizer, pairs


def run(state, steps, repaired):
    towers, optimizer, pairs = state
    losses = []
    for step in range(steps):
        a, b = towers[0](pairs[0]), towers[1](pairs[1])
        loss = 1 - nn.functional.cosine_similarity(a, b).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if not repaired:
            print("step", step, "loss", loss, file=sys.stderr)
    for step, value in enumerate(torch.stack(losses).tolist()):
        if repaired:
            print("step", step, "loss", value, file=sys.stderr)
    return torch.stack(losses).sum()


main(prepare, run, steps=60)
