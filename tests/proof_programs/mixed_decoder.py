"""Serves a language model, word by word, from the checkpoint of its training; computes under autocast."""

import contextlib

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    """Attention to a fixed number of words before, and a gated feed-forward network."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x, cache, at):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(1)
        cache[0][:, :, at], cache[1][:, :, at] = k, v
        mixed = F.scaled_dot_product_attention(q[:, :, None].to(cache.dtype), cache[0], cache[1])
        x = x + self.out(mixed[:, :, 0].flatten(1))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def prepare(device, repaired):
    width, heads, depth, batch, length = (
        (4096, 32, 4, 8, 256) if device == "cuda" else (16, 2, 2, 2, 8)
    )
    with torch.device(device):
        layers = nn.ModuleList(Layer(width, heads) for _ in range(depth)).eval()
        caches = torch.zeros(depth, 2, batch, heads, length, width // heads, dtype=torch.bfloat16)
        words = torch.randn(64, batch, width)
    if repaired:
        layers, words = layers.bfloat16(), words.bfloat16()
        lower = contextlib.nullcontext()
    else:
        lower = torch.autocast(device, torch.bfloat16)
    return layers, caches, words, lower


@torch.inference_mode()
def run(state, steps, repaired):
    layers, caches, words, lower = state
    total = torch.zeros((), device=words.device)
    for step in range(steps):
        x = words[step % len(words)]
        with lower:
            for layer, cache in zip(layers, caches, strict=True):
                x = layer(x, cache, step % caches.shape[4])
        total += x.float().square().mean()
    return total / steps


main(prepare, run, steps=400)
