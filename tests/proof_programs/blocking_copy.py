"""Runs a wide MLP over pinned batches that are copied one after another."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width, rows = (4096, 8192) if device == "cuda" else (16, 8)
    model = nn.Sequential(
        *[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(5)]
    ).to(device, torch.bfloat16)
    batches = [torch.randn(rows, width).to(torch.bfloat16) for _ in range(4)]
    if device == "cuda":
        batches = [batch.pin_memory() for batch in batches]
    return model, batches, device


@torch.no_grad()
def run(state, steps, repaired):
    model, batches, device = state
    total = torch.zeros((), device=device)
    if not repaired or device != "cuda":
        for step in range(steps):
            x = batches[step % len(batches)].to(device)
            total += model(x).float().mean()
        return total
    side = torch.cuda.Stream()

    def fetch(step):
        with torch.cuda.stream(side):
            return batches[step % len(batches)].to(device, non_blocking=True)

    ahead = fetch(0)
    for step in range(steps):
        torch.cuda.current_stream().wait_stream(side)
        x = ahead
        x.record_stream(torch.cuda.current_stream())
        if step + 1 < steps:
            ahead = fetch(step + 1)
        total += model(x).float().mean()
    return total


main(prepare, run, steps=100)
