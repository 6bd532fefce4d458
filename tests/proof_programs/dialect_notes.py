"""Writes notes in dialects: each layer has weights that all share, and a small change of low rank for the dialect."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Changed(nn.Module):
    """A linear layer whose weights are changed by a product of two narrow matrices."""

    def __init__(self, width, rank, narrow):
        super().__init__()
        self.base = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.up = nn.Parameter(torch.randn(width, rank) / rank**0.5)
        self.down = nn.Parameter(torch.randn(rank, width) / width**0.5)
        self.narrow = narrow

    def forward(self, x):
        if self.narrow:
            return F.linear(x, self.base) + 0.5 * F.linear(F.linear(x, self.down), self.up)
        return F.linear(x, self.base + 0.5 * (self.up @ self.down))


class Writer(nn.Module):
    def __init__(self, width, rank, depth, narrow):
        super().__init__()
        self.layers = nn.ModuleList(Changed(width, rank, narrow) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = F.rms_norm(x + F.silu(layer(x)), x.shape[1:])
        return x


def prepare(device, repaired):
    width, rank, depth, batch = (6144, 16, 8, 48) if device == "cuda" else (32, 4, 2, 3)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = Writer(width, rank, depth, narrow=repaired).to(dtype).eval()
    return model, torch.randn(8, batch, width, device=device, dtype=dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    model, notes = state
    total = torch.zeros((), device=notes.device)
    for step in range(steps):
        total += model(notes[step % 8]).float().abs().mean()
    return total / steps


main(prepare, run, steps=700)
