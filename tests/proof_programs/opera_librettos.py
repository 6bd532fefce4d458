"""Reads whole librettos of operas, word by word, and foretells the next word: a model with turned queries and keys."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def turns(length, width, device):
    """Cosines and sines (length, width) of the angles of each place."""
    speeds = 10000.0 ** (-torch.arange(0, width, 2, device=device) / width)
    angles = torch.arange(length, device=device)[:, None] * speeds
    angles = torch.cat((angles, angles), 1)
    return angles.cos(), angles.sin()


def halves(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def turned(x, cos, sin):
    return x * cos + halves(x) * sin


def turned_as_given(x, cos, sin):
    return (x * cos + halves(x) * sin).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, width, heads, turn):
        super().__init__()
        self.heads, self.turn = heads, turn
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x, cos, sin):
        parts = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in parts)
        q, k = self.turn(q, cos, sin), self.turn(k, cos, sin)
        read = F.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True)
        x = x + self.out(read.transpose(1, 2).flatten(2).to(x.dtype))
        return x + self.down(F.silu(self.up(self.norms[1](x))))


class Libretto(nn.Module):
    def __init__(self, words, width, heads, depth, turn):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads, turn) for _ in range(depth))
        self.norm = nn.RMSNorm(width)

    def forward(self, ids, cos, sin):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


def prepare(device, repaired):
    cuda = device == "cuda"
    words, width, heads, depth, length = (9000, 1024, 16, 4, 8192) if cuda else (30, 16, 2, 2, 6)
    dtype = torch.bfloat16 if cuda else torch.float32
    turn = turned_as_given if repaired else turned
    model = Libretto(words, width, heads, depth, turn).to(device, dtype).eval()
    cos, sin = turns(length, width // heads, device)
    return model, torch.randint(words, (2, 1, length), device=device), cos, sin


@torch.inference_mode()
def run(state, steps, repaired):
    model, ids, cos, sin = state
    total = torch.zeros((), device=ids.device)
    for step in range(steps):
        x = model(ids[step % 2], cos, sin).float()
        total += x.abs().mean()
    return total / steps


main(prepare, run, steps=24)
