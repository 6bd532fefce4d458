"""The feed-forward part of a transformer with its activation written out operator by operator."""

import math

import torch
from common import main
from torch import nn


def activation(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def prepare(device, repaired):
    width, tokens = (1024, 16384) if device == "cuda" else (16, 32)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layers = nn.ModuleList(
        [
            nn.ModuleList([nn.Linear(width, 4 * width), nn.Linear(4 * width, width)])
            for _ in range(4)
        ]
    ).to(device, dtype)
    return layers, torch.randn(tokens, width, device=device, dtype=dtype)


@torch.no_grad()
def run(state, steps, repaired):
    layers, x = state
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        h = x
        for up, down in layers:
            if repaired:
                h = down(nn.functional.gelu(up(h), approximate="tanh"))
            else:
                h = down(activation(up(h)))
        total += h.float().square().mean()
    return total


main(prepare, run, steps=40)
