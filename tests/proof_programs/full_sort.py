"""Draws the next tokens of a batch from the 50 most likely words each."""

import torch
from common import main

BEST = 50


def prepare(device, repaired):
    batch, width, words = (256, 4096, 128256) if device == "cuda" else (4, 8, 200)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    head = torch.randn(words, width, device=device, dtype=dtype) / width**0.5
    draws = torch.rand(batch, 1, device=device)
    return torch.randn(batch, width, device=device, dtype=dtype), head, draws


@torch.inference_mode()
def run(state, steps, repaired):
    hidden, head, draws = state
    for _ in range(steps):
        logits = hidden @ head.T
        if repaired:
            scores, words = logits.topk(BEST, dim=1)
        else:
            scores, words = logits.sort(dim=1, descending=True)
            scores, words = scores[:, :BEST], words[:, :BEST]
        chances = scores.float().softmax(dim=1).cumsum(dim=1)
        at = torch.searchsorted(chances, draws).clamp(max=BEST - 1)
        tokens = words.gather(1, at)
    return scores.float().mean() + 0 * tokens.sum()


main(prepare, run, steps=20)
