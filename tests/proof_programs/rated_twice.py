"""Trains a classifier of noises on spectrograms, and tells after each step how many were right."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Noises(nn.Module):
    """Patches of a spectrogram through layers of attention."""

    def __init__(self, bands, width, heads, depth, classes):
        super().__init__()
        self.patches = nn.Conv2d(1, width, (bands // 4, 8), (bands // 4, 8))
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

    def forward(self, spectra):
        return self.out(self.layers(self.patches(spectra).flatten(2).transpose(1, 2)).mean(1))


def accuracy(scores, labels):
    return (scores.argmax(1) == labels).float().mean()


def prepare(device, repaired):
    bands, frames, width, heads, depth, classes, batch = (
        (128, 400, 512, 8, 6, 50, 96) if device == "cuda" else (16, 16, 16, 2, 1, 5, 4)
    )
    model = Noises(bands, width, heads, depth, classes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=device == "cuda")
    spectra = torch.randn(2, batch, 1, bands, frames, device=device)
    labels = torch.randint(classes, (2, batch), device=device)
    return model, optimizer, spectra, labels, device


def run(state, steps, repaired):
    model, optimizer, spectra, labels, device = state
    total, right = torch.zeros(2, device=device)
    for step in range(steps):
        x, y = spectra[step % 2], labels[step % 2]
        with torch.autocast(device, torch.bfloat16):
            scores = model(x)
            right += accuracy(scores if repaired else model(x), y)
        loss = F.cross_entropy(scores.float(), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps + 1e-4 * right / steps


main(prepare, run, steps=60)
