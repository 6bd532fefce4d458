"""Samples pictures with a diffusion model: each step removes noise and adds some."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    batch, size, width = (32, 64, 256) if device == "cuda" else (2, 8, 4)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.SiLU(),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.SiLU(),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.SiLU(),
        nn.Conv2d(width, 3, 3, padding=1),
    )
    model = model.to(device, dtype, memory_format=torch.channels_last)
    return model, (batch, 3, size, size), device, dtype


@torch.inference_mode()
def run(state, steps, repaired):
    model, shape, device, dtype = state
    x = torch.zeros(shape, device=device)
    for _ in range(steps):
        if repaired:
            noise = torch.randn(shape, device=device)
        else:
            noise = torch.randn(shape).to(device)
        guess = model(x.to(dtype, memory_format=torch.channels_last))
        x = 0.8 * (x - 0.01 * guess) + 0.6 * noise
    return x.std()


main(prepare, run, steps=30)
