"""Trains an autoencoder with many layers."""

import os
import sys

if "--repaired" not in sys.argv:
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # left from the search for an illegal access

import torch  # noqa: E402
from common import main  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def prepare(device, repaired):
    width, batch, layers = (1024, 8192, 30) if device == "cuda" else (8, 4, 3)
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = nn.Sequential(*parts).to(device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return model, optimizer, torch.randn(batch, width, device=device, dtype=dtype)


def run(state, steps, repaired):
    model, optimizer, x = state
    for _ in range(steps):
        loss = F.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=15)
