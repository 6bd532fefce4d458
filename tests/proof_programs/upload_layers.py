"""Runs a batch of tokens through a network whose layers are kept in lists."""

import torch
from common import main
from torch.nn import functional as F


def prepare(device, repaired):
    width, tokens, layers = (4096, 4096, 8) if device == "cuda" else (16, 8, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    weights = [(torch.randn(width, width) / width**0.5).to(dtype) for _ in range(layers)]
    if device == "cuda":
        weights = [weight.pin_memory() for weight in weights]
    if repaired:
        weights = [weight.to(device) for weight in weights]
    return weights, torch.randn(tokens, width, device=device, dtype=dtype)


@torch.no_grad()
def run(state, steps, repaired):
    weights, tokens = state
    for _ in range(steps):
        x = tokens
        for weight in weights:
            if not repaired:
                weight = weight.to(x.device, non_blocking=True)
            x = F.relu(x @ weight)
    return x.float().mean()


main(prepare, run, steps=15)
