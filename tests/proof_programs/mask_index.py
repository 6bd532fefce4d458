"""A masked-language-model head: the loss of the masked positions alone, in 16 micro-batches."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width, tokens = (512, 4096) if device == "cuda" else (16, 64)
    body = nn.Sequential(
        *[nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(8)]
    ).to(device)
    x = torch.randn(tokens, width, device=device)
    mask = torch.rand(tokens, device=device) < 0.15
    return body, x, mask


def run(state, steps, repaired):
    body, x, mask = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        with torch.no_grad():
            hidden = body(x + step)
        masked = mask.roll(step)
        error = hidden.square().mean(-1)
        if repaired:
            total += (error * masked).sum() / masked.sum()
        else:
            total += error[masked].mean()
    return total


main(prepare, run, steps=300)
