"""Trains a vision transformer on pictures that are cut into patches."""

import contextlib

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Vision(nn.Module):
    """Patches, positions, layers of attention, and a guess from the mean of all patches."""

    def __init__(self, size, patch, width, heads, depth, classes):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(torch.zeros((size // patch) ** 2, width))
        layer = nn.TransformerEncoderLayer(
            width,
            heads,
            4 * width,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Linear(width, classes)

    def forward(self, pictures):
        x = self.patches(pictures).flatten(2).transpose(1, 2) + self.places
        return self.out(self.layers(x).mean(1))


def prepare(device, repaired):
    size, patch, width, heads, depth, classes, batch = (
        (224, 16, 512, 8, 8, 1000, 64) if device == "cuda" else (32, 8, 16, 2, 1, 10, 2)
    )
    model = Vision(size, patch, width, heads, depth, classes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=device == "cuda")
    pictures = torch.randn(2, batch, 3, size, size, device=device)
    labels = torch.randint(classes, (2, batch), device=device)
    lower = torch.autocast(device, torch.bfloat16) if repaired else contextlib.nullcontext()
    return model, optimizer, pictures, labels, lower


def run(state, steps, repaired):
    model, optimizer, pictures, labels, lower = state
    total = torch.zeros((), device=pictures.device)
    for step in range(steps):
        with lower:
            guesses = model(pictures[step % 2])
        loss = F.cross_entropy(guesses.float(), labels[step % 2])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=30)
