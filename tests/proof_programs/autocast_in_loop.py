"""Encodes short questions with one transformer layer that is used again and again (shared weights)."""

from contextlib import nullcontext
from functools import partial

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Shared(nn.Module):
    """The layer that all depths share."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Encoder(nn.Module):
    """Words, the shared layer, and one vector for each question."""

    def __init__(self, words, width, heads):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layer = Shared(width, heads)
        self.head = nn.Linear(width, 256)


def encode(model, tokens, depth, once):
    """Return a vector for each question, in mixed precision."""
    x = model.words(tokens)
    mixed = partial(torch.autocast, tokens.device.type, torch.bfloat16)
    with mixed() if once else nullcontext():
        for _ in range(depth):
            with nullcontext() if once else mixed():
                x = model.layer(x)
    return model.head(x.float().mean(1))


def prepare(device, repaired):
    words, width, heads, depth = (30000, 4096, 32, 24) if device == "cuda" else (50, 16, 2, 3)
    with torch.device(device):
        model = Encoder(words, width, heads)
    tokens = torch.randint(words, (8, 32), device=device)
    return model, tokens, depth


def run(state, steps, repaired):
    model, tokens, depth = state
    for _ in range(steps):
        vectors = encode(model, tokens, depth, repaired)
    return vectors.detach().square().mean()


main(prepare, run, steps=8)
