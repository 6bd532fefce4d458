"""A bfloat16 MLP-mixer whose normalisation goes to single precision and back at every layer."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width, tokens, layers = (1024, 32768, 8) if device == "cuda" else (16, 32, 2)
    dtype = torch.bfloat16
    mixers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)]).to(device, dtype)
    norm = nn.LayerNorm(width).to(device, dtype if repaired else torch.float32)
    return mixers, norm, torch.randn(tokens, width, device=device, dtype=dtype)


@torch.no_grad()
def run(state, steps, repaired):
    mixers, norm, x = state
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        h = x
        for mixer in mixers:
            if repaired:
                h = mixer(norm(h))
            else:
                h = mixer(norm(h.float()).to(torch.bfloat16))
        total += h.float().square().mean()
    return total


main(prepare, run, steps=30)
