"""Keeps a moving average of the weights of a deep network after each step of training."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width, depth, batch = (256, 200, 256) if device == "cuda" else (8, 4, 4)
    model = nn.Sequential(
        *[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)]
    ).to(device)
    weights = [p.detach() for p in model.parameters()]
    averages = [torch.zeros_like(p) for p in weights]
    return model, weights, averages, torch.randn(batch, width, device=device)


@torch.no_grad()
def run(state, steps, repaired):
    model, weights, averages, x = state
    for _ in range(steps):
        y = model(x)
        if repaired:
            torch._foreach_lerp_(averages, weights, 0.001)
        else:
            for average, weight in zip(averages, weights, strict=True):
                average.mul_(0.999).add_(weight, alpha=0.001)
    return sum(average.sum() for average in averages) + y.mean() * 0


main(prepare, run, steps=40)
