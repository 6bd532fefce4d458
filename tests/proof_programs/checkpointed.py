"""Trains a transformer encoder with activation checkpointing in every layer, although memory is free."""

import torch
from common import main
from torch import nn
from torch.utils.checkpoint import checkpoint


def prepare(device, repaired):
    width, tokens, batch, layers = (1024, 512, 16, 8) if device == "cuda" else (16, 8, 2, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    encoder = nn.ModuleList(
        [
            nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(layers)
        ]
    ).to(device, dtype)
    return (
        encoder,
        torch.optim.SGD(encoder.parameters(), lr=1e-4),
        torch.randn(batch, tokens, width, device=device, dtype=dtype),
    )


def run(state, steps, repaired):
    encoder, optimizer, x = state
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        h = x
        for layer in encoder:
            if repaired:
                h = layer(h)
            else:
                h = checkpoint(layer, h, use_reentrant=False)
        loss = h.float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total


main(prepare, run, steps=12)
