"""Keeps the activations of each layer on the host for a later analysis."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width, tokens = (2048, 8192) if device == "cuda" else (8, 4)
    layers = nn.ModuleList([nn.Linear(width, width) for _ in range(6)]).to(device, torch.bfloat16)
    x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
    kept = (
        [torch.empty(x.shape, dtype=x.dtype, pin_memory=device == "cuda") for _ in layers]
        if repaired
        else None
    )
    return layers, x, kept


@torch.no_grad()
def run(state, steps, repaired):
    layers, x, kept = state
    total = 0.0
    for _ in range(steps):
        h, stored = x, []
        for at, layer in enumerate(layers):
            h = torch.relu(layer(h))
            if repaired:
                kept[at].copy_(h, non_blocking=True)
                stored.append(kept[at])
            else:
                stored.append(h.to("cpu"))
        total += h.float().mean()
    return total


main(prepare, run, steps=10)
