"""Finds petals of orchids in photographs: 900 guesses look at all points of a picture's map and are made better layer by layer."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Look(nn.Module):
    """Guesses (batch, guesses, width) look at points (batch, points, width)."""

    def __init__(self, width, heads, options):
        super().__init__()
        self.look = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.options = options

    def forward(self, guesses, points):
        seen, _ = self.look(self.norms[0](guesses), points, points, **self.options)
        guesses = guesses + seen
        return guesses + self.down(F.gelu(self.up(self.norms[1](guesses))))


class Finder(nn.Module):
    def __init__(self, guesses, width, heads, depth, options):
        super().__init__()
        self.guesses = nn.Parameter(torch.randn(1, guesses, width))
        self.layers = nn.ModuleList(Look(width, heads, options) for _ in range(depth))
        self.boxes = nn.Linear(width, 4)

    def forward(self, points):
        x = self.guesses.expand(len(points), -1, -1)
        for layer in self.layers:
            x = layer(x, points)
        return self.boxes(x).sigmoid()


def prepare(device, repaired):
    cuda = device == "cuda"
    sizes = (900, 512, 8, 6) if cuda else (5, 8, 2, 2)
    batch, points, dtype = (8, 4096, torch.bfloat16) if cuda else (2, 7, torch.float32)
    options = {"need_weights": False} if repaired else {}
    torch.manual_seed(16)
    finder = Finder(*sizes, options).to(device, dtype).eval()
    maps = torch.randn(2, batch, points, sizes[1], device=device, dtype=dtype)
    return finder, maps


@torch.inference_mode()
def run(state, steps, repaired):
    finder, maps = state
    total = torch.zeros((), device=maps.device)
    for step in range(steps):
        total += finder(maps[step % 2]).float().mean()
    return total / steps


main(prepare, run, steps=100)
