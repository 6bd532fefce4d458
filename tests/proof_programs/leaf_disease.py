"""Trains a network that tells diseases of leaves from rows of a hyperspectral picture."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width, heads, lean):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.options = {"need_weights": False} if lean else {}

    def forward(self, x):
        y = self.norms[0](x)
        mixed, _ = self.attention(y, y, y, **self.options)
        x = x + mixed
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Leaves(nn.Module):
    def __init__(self, bands, width, heads, depth, kinds, lean):
        super().__init__()
        self.first = nn.Linear(bands, width)
        self.layers = nn.Sequential(*(Layer(width, heads, lean) for _ in range(depth)))
        self.last = nn.Linear(width, kinds)

    def forward(self, spots):
        return self.last(self.layers(self.first(spots)).mean(1))


def prepare(device, repaired):
    bands, width, heads, depth, kinds, batch, spots = (
        (200, 512, 8, 4, 10, 12, 2048) if device == "cuda" else (10, 16, 2, 2, 3, 2, 12)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = Leaves(bands, width, heads, depth, kinds, lean=repaired).to(device, dtype)
    pictures = torch.randn(4, batch, spots, bands, device=device, dtype=dtype)
    kind = torch.randint(kinds, (4, batch), device=device)
    return (
        model,
        torch.optim.SGD(model.parameters(), lr=1e-4, fused=device == "cuda"),
        pictures,
        kind,
    )


def run(state, steps, repaired):
    model, optimizer, pictures, kind = state
    total = torch.zeros((), device=pictures.device)
    for step in range(steps):
        loss = F.cross_entropy(model(pictures[step % 4]).float(), kind[step % 4])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=80)
