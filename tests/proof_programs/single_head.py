"""The forward pass of a language model in bfloat16; its logits are worked out in single precision."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width, tokens, words = (2048, 4096, 32000) if device == "cuda" else (16, 16, 64)
    layers = nn.ModuleList(
        [
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.GELU(),
                nn.Linear(4 * width, width),
            )
            for _ in range(4)
        ]
    ).to(device, torch.bfloat16)
    head = (torch.randn(width, words, device=device) / width**0.5).to(torch.bfloat16)
    return layers, head, torch.randn(tokens, width, device=device, dtype=torch.bfloat16)


@torch.no_grad()
def run(state, steps, repaired):
    layers, head, x = state
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        h = x
        for layer in layers:
            h = h + layer(h)
        if repaired:
            logits = h @ head
        else:
            logits = h.float() @ head.float()
        total += logits.amax(-1).float().mean()
    return total


main(prepare, run, steps=20)
