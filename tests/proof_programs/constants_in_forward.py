"""Finds what short texts are about with an encoder; its layers scale scores and residuals by numbers of their own."""

import math

import torch
from common import main
from torch import nn


class Layer(nn.Module):
    """Attention and a feed-forward network; deeper layers add less."""

    def __init__(self, width, heads, level, fixed):
        super().__init__()
        self.heads, self.level, self.fixed = heads, level, fixed
        self.size = width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def number(self, value, x):
        """Return a constant with which tensors like x can be multiplied."""
        return value if self.fixed else torch.tensor(value, dtype=x.dtype, device=x.device)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * self.number(1 / math.sqrt(self.size), x)
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)
        x = x + self.out(mixed) * self.number(1 / math.sqrt(2 * self.level), x)
        return x + self.down(torch.relu(self.up(x))) * self.number(1 / math.sqrt(2 * self.level), x)


def prepare(device, repaired):
    width, heads, depth, texts, length = (
        (512, 8, 12, 32, 64) if device == "cuda" else (8, 2, 2, 2, 4)
    )
    dtype = torch.float16 if device == "cuda" else torch.float32
    layers = [Layer(width, heads, level + 1, repaired) for level in range(depth)]
    model = nn.Sequential(*layers, nn.LayerNorm(width)).to(device, dtype).eval()
    head = nn.Linear(width, 20).to(device, dtype)
    return model, head, torch.randn(8, texts, length, width, device=device, dtype=dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    model, head, texts = state
    total = 0
    for step in range(steps):
        total = total + head(model(texts[step % len(texts)]).mean(1)).float().square().mean()
    return total / steps


main(prepare, run, steps=100)
