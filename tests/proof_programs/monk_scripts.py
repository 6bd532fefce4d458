"""Goes on writing eight chronicles of a monastery word by word, with a language model whose positions are stretched."""

import math

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Rotary(nn.Module):
    def __init__(self, width, kept, device, base=150000.0, factor=32.0, trained=4096):
        super().__init__()
        self.width, self.base, self.factor, self.trained = width, base, factor, trained
        self.device, self.kept = device, kept
        if kept:
            self.cos, self.sin = self.waves(torch.arange(kept, device=device))

    def frequencies(self):
        half = self.width / 2
        powers = torch.arange(0, self.width, 2, dtype=torch.float, device=self.device) / self.width
        slow = self.base**powers
        low = half * math.log(self.trained / (32 * 2 * math.pi)) / math.log(self.base)
        high = half * math.log(self.trained / (2 * math.pi)) / math.log(self.base)
        ramp = (torch.arange(half, dtype=torch.float, device=self.device) - low) / (high - low)
        share = 1 - ramp.clamp(0, 1)
        return (1.0 / (self.factor * slow)) * (1 - share) + (1.0 / slow) * share

    def waves(self, positions):
        angles = positions[:, None].float() * self.frequencies()
        scale = 0.1 * math.log(self.factor) + 1.0
        return angles.cos() * scale, angles.sin() * scale

    def forward(self, q, k, position):
        if self.kept:
            cos, sin = self.cos[position : position + 1], self.sin[position : position + 1]
        else:
            cos, sin = self.waves(torch.arange(position, position + 1, device=q.device))
        return self.turn(q, cos, sin), self.turn(k, cos, sin)

    def turn(self, x, cos, sin):
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, width, heads, longest, rotary):
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x, cache, position):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        q, k = self.rotary(q, k, position)
        cache[0, :, :, position : position + 1] = k
        cache[1, :, :, position : position + 1] = v
        keys, values = cache[:, :, :, : position + 1]
        read = F.scaled_dot_product_attention(q, keys, values)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norms[1](x))))


def prepare(device, repaired):
    cuda = device == "cuda"
    words, width, heads, depth, longest, texts = (
        (20000, 1024, 16, 12, 256, 8) if cuda else (40, 32, 2, 2, 16, 2)
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    kept = longest if repaired else 0
    blocks = nn.ModuleList(
        Block(width, heads, longest, Rotary(width // heads, kept, device)) for _ in range(depth)
    )
    blocks = blocks.to(device, dtype).eval()
    start = torch.randint(words, (texts, 1), device=device)
    table = (torch.randn(words, width, device=device) * 0.05).to(dtype)
    caches = torch.zeros(
        depth, 2, texts, heads, longest, width // heads, device=device, dtype=dtype
    )
    return blocks, table, caches, start


@torch.inference_mode()
def run(state, steps, repaired):
    blocks, table, caches, word = state
    total = torch.zeros((), device=word.device)
    for position in range(steps):
        x = table[word]
        for block, cache in zip(blocks, caches, strict=True):
            x = block(x, cache, position)
        scores = x[:, -1] @ table.T
        word = scores.argmax(-1, keepdim=True)
        total += x.float().abs().mean()
    return total / steps


main(prepare, run, steps=160)
