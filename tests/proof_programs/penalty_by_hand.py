"""Trains a forecaster of electricity demand from many small gated blocks, with a penalty on the size of its weights."""

import torch
from common import main
from torch import nn


class Gated(nn.Module):
    """A small block of a temporal fusion network: two layers and a gate beside a way round them."""

    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.gate = (nn.Linear(width, width) for _ in range(3))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = self.b(torch.nn.functional.elu(self.a(x)))
        return self.norm(x + torch.sigmoid(self.gate(x)) * y)


def prepare(device, repaired):
    inputs, width, depth, batch = (64, 160, 24, 2048) if device == "cuda" else (4, 8, 2, 4)
    model = nn.Sequential(
        nn.Linear(inputs, width), *(Gated(width) for _ in range(depth)), nn.Linear(width, 24)
    ).to(device)
    penalty, rate = 1e-4, 1e-3
    optimizer = torch.optim.SGD(
        model.parameters(), lr=rate, weight_decay=2 * penalty if repaired else 0.0, foreach=True
    )
    weeks = torch.randn(4, batch, inputs, device=device)
    demand = torch.randn(4, batch, 24, device=device)
    return model, optimizer, weeks, demand, penalty


def run(state, steps, repaired):
    model, optimizer, weeks, demand, penalty = state
    total = torch.zeros((), device=weeks.device)
    for step in range(steps):
        error = (model(weeks[step % 4]) - demand[step % 4]).square().mean()
        loss = error
        if not repaired:
            loss = error + penalty * sum(p.pow(2).sum() for p in model.parameters())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += error.detach()
    return total / steps


main(prepare, run, steps=100)
