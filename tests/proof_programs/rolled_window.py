"""Writes music note by note with a transformer that sees a window of the last notes (sliding-window attention)."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Window:
    """Keys and values of the last notes; a ring overwrites the oldest place, else all move by one."""

    def __init__(self, shape, device, dtype, ring):
        self.keys, self.values = (
            torch.randn(shape, device=device).to(dtype) * 0.1 for _ in range(2)
        )
        self.ring, self.number = ring, 0

    def add(self, key, value):
        if self.ring:
            at = self.number % self.keys.shape[2]
        else:
            self.keys, self.values = (
                torch.roll(kept, -1, dims=2) for kept in (self.keys, self.values)
            )
            at = -1
        self.number += 1
        self.keys[:, :, at], self.values[:, :, at] = key, value


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, window):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(1)
        window.add(k, v)
        mixed = F.scaled_dot_product_attention(q[:, :, None], window.keys, window.values)
        x = x + self.out(mixed[:, :, 0].flatten(1))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def prepare(device, repaired):
    width, heads, depth, notes, batch, length = (
        (768, 12, 4, 512, 48, 2048) if device == "cuda" else (16, 2, 2, 16, 2, 8)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layers = nn.ModuleList(Layer(width, heads) for _ in range(depth)).to(device, dtype).eval()
    table = nn.Embedding(notes, width).to(device, dtype)
    shape = batch, heads, length, width // heads
    windows = [Window(shape, device, dtype, repaired) for _ in range(depth)]
    played = torch.randint(notes, (1024, batch), device=device)
    return table, layers, windows, played


@torch.inference_mode()
def run(state, steps, repaired):
    table, layers, windows, played = state
    total = torch.zeros((), device=played.device)
    for number in range(steps):
        x = table(played[number % len(played)])
        for layer, window in zip(layers, windows, strict=True):
            x = layer(x, window)
        total += x.float().square().mean()
    return total / steps


main(prepare, run, steps=500, small=6)
