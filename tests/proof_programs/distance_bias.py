"""Encodes texts with attention that knows how far words are apart (T5)."""

import math

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def buckets(length, number, farthest, device):
    """Return which bucket the distance of each two words belongs to, [query, key]."""
    place = torch.arange(length, device=device)
    distance = place[None, :] - place[:, None]
    half = number // 2
    side = (distance > 0).long() * half
    distance = distance.abs()
    exact = half // 2
    far = torch.log(distance.float().clamp(min=1) / exact) / math.log(farthest / exact)
    far = (exact + (far * (half - exact)).long()).clamp(max=half - 1)
    return side + torch.where(distance < exact, distance, far)


class Layer(nn.Module):
    """Attention with a bias for distances, and a feed-forward network."""

    def __init__(self, width, heads):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x, bias):
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Encoder(nn.Module):
    """Layers that share what a distance means."""

    def __init__(self, words, width, heads, layers, once):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.distances = nn.Embedding(32, heads)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.once = once

    def bias(self, length, device):
        return self.distances(buckets(length, 32, 128, device)).permute(2, 0, 1)[None].contiguous()

    def forward(self, ids):
        x, bias = self.words(ids), None
        for layer in self.layers:
            if bias is None or not self.once:
                bias = self.bias(ids.shape[1], ids.device)
            x = layer(x, bias)
        return x


def prepare(device, repaired):
    length, width, layers = (2048, 512, 6) if device == "cuda" else (24, 16, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = Encoder(8000, width, 8, layers, repaired).to(device, dtype).eval()
    return model, torch.randint(8000, (2, length), device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, ids = state
    for _ in range(steps):
        made = model(ids)
    return made.float().square().mean()


main(prepare, run, steps=25)
