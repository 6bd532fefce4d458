"""Takes noise off designs for bathroom tiles, step by step: a block looks at all places of a design at once."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class SpatialAttention(nn.Module):
    """Lets each place of a picture read all others."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(width, width, bias=False)
        self.to_v = nn.Linear(width, width, bias=False)
        self.to_out = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def read(self, q, k, v):
        scores = torch.matmul(q, k.transpose(-2, -1)) * q.shape[-1] ** -0.5
        return torch.matmul(scores.softmax(dim=-1), v)

    def forward(self, x):
        y = self.norm(x)
        q, k, v = self.split(self.to_q(y)), self.split(self.to_k(y)), self.split(self.to_v(y))
        return x + self.to_out(self.read(q, k, v).transpose(1, 2).flatten(2))


class FusedSpatialAttention(SpatialAttention):
    def read(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


class Block(nn.Module):
    def __init__(self, width, heads, attention):
        super().__init__()
        self.attention = attention(width, heads)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = self.attention(x)
        return x + self.down(F.gelu(self.up(self.norm(x))))


def prepare(device, repaired):
    cuda = device == "cuda"
    designs, side, width, heads, depth = (4, 64, 512, 8, 4) if cuda else (2, 4, 16, 2, 2)
    dtype = torch.bfloat16 if cuda else torch.float32
    attention = FusedSpatialAttention if repaired else SpatialAttention
    blocks = nn.ModuleList(Block(width, heads, attention) for _ in range(depth))
    blocks = blocks.to(device, dtype).eval()
    noise = torch.randn(designs, side * side, width, device=device, dtype=dtype)
    return blocks, noise, torch.linspace(1.0, 0.02, 50).tolist()


@torch.inference_mode()
def run(state, steps, repaired):
    blocks, noise, sigmas = state
    total = torch.zeros((), device=noise.device)
    x = noise
    for step in range(steps):
        sigma = sigmas[step % len(sigmas)]
        guess = x * (1 + sigma**2) ** -0.5
        for block in blocks:
            guess = block(guess)
        x = F.layer_norm(x + 0.05 * sigma * (guess - x), x.shape[-1:])
        total += x.float().abs().mean()
    return total / steps


main(prepare, run, steps=80)
