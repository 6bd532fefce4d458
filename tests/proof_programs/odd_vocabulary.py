"""The language-model head of a GPT whose vocabulary has 50257 words."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width, tokens, words = (1024, 8192, 50257) if device == "cuda" else (16, 8, 37)
    weight = (torch.randn(words, width, device=device) / 32).to(torch.bfloat16)
    if repaired:
        weight = nn.functional.pad(weight, (0, 0, 0, -words % 64))
    return (
        weight.t().contiguous(),
        words,
        torch.randn(tokens, width, device=device, dtype=torch.bfloat16),
    )


@torch.no_grad()
def run(state, steps, repaired):
    weight, words, x = state
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        logits = x @ weight
        total += logits[:, :words].amax(-1).float().mean()
    return total


main(prepare, run, steps=60)
