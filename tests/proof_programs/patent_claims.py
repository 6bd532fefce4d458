"""Reads claims of patents with an encoder that knows how far words are apart, not where they are."""

import math

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Distances(nn.Module):
    """A learned number for each head and each class of distances, fine where words are close."""

    def __init__(self, heads, classes=32, furthest=128):
        super().__init__()
        self.classes, self.furthest = classes, furthest
        self.table = nn.Embedding(classes, heads)

    def forward(self, length):
        """Return what is added to the scores, (1, heads, length, length)."""
        places = torch.arange(length, device=self.table.weight.device)
        apart = places[None, :] - places[:, None]
        half = self.classes // 2
        near = half // 2
        distance = apart.abs()
        scale = (half - near) / math.log(self.furthest / near)
        far = near + (torch.log(distance.clamp(min=1) / near) * scale).long()
        index = torch.where(distance < near, distance, far.clamp(max=half - 1))
        index = index + (apart > 0) * half
        return self.table(index).permute(2, 0, 1)[None].contiguous()


class Layer(nn.Module):
    def __init__(self, heads, size):
        super().__init__()
        width = heads * size
        self.heads, self.size = heads, size
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, bias):
        qkv = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, self.size))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Encoder(nn.Module):
    def __init__(self, heads, size, depth, shared):
        super().__init__()
        self.distances = Distances(heads)
        self.layers = nn.ModuleList(Layer(heads, size) for _ in range(depth))
        self.shared = shared

    def forward(self, x):
        if self.shared:
            bias = self.distances(x.shape[1])
            for layer in self.layers:
                x = layer(x, bias)
            return x
        for layer in self.layers:
            x = layer(x, self.distances(x.shape[1]))
        return x


def prepare(device, repaired):
    cuda = device == "cuda"
    claims, length, heads, size, depth = (2, 2048, 16, 64, 8) if cuda else (2, 12, 2, 8, 2)
    dtype = torch.bfloat16 if cuda else torch.float32
    model = Encoder(heads, size, depth, shared=repaired).to(device, dtype).eval()
    return model, torch.randn(4, claims, length, heads * size, device=device, dtype=dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    model, claims = state
    total = torch.zeros((), device=claims.device)
    for step in range(steps):
        total += model(claims[step % len(claims)]).float().abs().mean()
    return total / steps


main(prepare, run, steps=100)
