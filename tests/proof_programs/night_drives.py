"""Tells what a car meets at night from small parts of its camera's frames, which look at each other by their angle only."""

import math

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Constant(nn.Module):
    """A number that every layer of a kind works with, on the device of what it is used with."""

    def __init__(self, value, fixed):
        super().__init__()
        self.value, self.fixed = value, fixed

    def forward(self, like):
        if self.fixed:
            return self.value
        return torch.tensor(self.value, dtype=like.dtype, device=like.device)


class CosineAttention(nn.Module):
    """Attention between the places of a window, by the cosine of queries and keys."""

    def __init__(self, width, heads, fixed):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.sharpness = nn.Parameter(torch.full((heads, 1, 1), 2.3))
        self.highest = Constant(math.log(100.0), fixed)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scale = torch.clamp(self.sharpness, max=self.highest(x)).exp()
        read = F.scaled_dot_product_attention(
            F.normalize(q, dim=-1) * scale, F.normalize(k, dim=-1), v, scale=1.0
        )
        return self.out(read.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads, depth, fixed):
        super().__init__()
        self.attention = CosineAttention(width, heads, fixed)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.share = Constant((2 * depth) ** -0.5, fixed)

    def forward(self, x):
        x = x + self.share(x) * self.norms[0](self.attention(x))
        return x + self.share(x) * self.norms[1](self.down(F.gelu(self.up(x))))


class Reader(nn.Module):
    def __init__(self, width, heads, depth, kinds, fixed):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, heads, depth, fixed) for _ in range(depth)))
        self.head = nn.Linear(width, kinds)

    def forward(self, x):
        return self.head(self.blocks(x).mean(dim=1))


def prepare(device, repaired):
    cuda = device == "cuda"
    windows, places, width, heads, depth = (32, 64, 256, 8, 24) if cuda else (2, 4, 16, 2, 3)
    torch.set_float32_matmul_precision("high")
    model = Reader(width, heads, depth, kinds=10, fixed=repaired).to(device).eval()
    return model, torch.randn(4, windows, places, width, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, frames = state
    total = torch.zeros((), device=frames.device)
    for step in range(steps):
        total += model(frames[step % len(frames)]).abs().mean()
    return total / steps


main(prepare, run, steps=100)
