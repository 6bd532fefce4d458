"""Greedy decoding of a small transformer with a key-value cache, collecting the tokens of each step."""

import torch
from common import main
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x, cache, position):
        b, _, c = x.shape
        q, k, v = (
            self.qkv(self.norms[0](x))
            .view(b, 1, 3, self.heads, c // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        cache[0, :, :, position : position + 1] = k
        cache[1, :, :, position : position + 1] = v
        a = nn.functional.scaled_dot_product_attention(
            q, cache[0, :, :, : position + 1], cache[1, :, :, : position + 1]
        )
        x = x + self.out(a.transpose(1, 2).reshape(b, 1, c))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


def prepare(device, repaired):
    width, layers, batch, length = (2048, 4, 64, 256) if device == "cuda" else (32, 2, 2, 16)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    blocks = nn.ModuleList([Block(width, 8) for _ in range(layers)]).to(device, dtype)
    embed = nn.Embedding(32000 if device == "cuda" else 100, width).to(device, dtype)
    caches = torch.zeros(layers, 2, batch, 8, length, width // 8, device=device, dtype=dtype)
    return blocks, embed, caches


@torch.no_grad()
def run(state, steps, repaired):
    blocks, embed, caches = state
    tokens = torch.arange(caches.shape[2], device=caches.device)[:, None]
    generated = []
    for position in range(steps):
        x = embed(tokens)
        for block, cache in zip(blocks, caches, strict=True):
            x = block(x, cache, position)
        tokens = (x @ embed.weight.T).argmax(-1)
        generated.append(tokens if repaired else tokens.cpu())
    return torch.cat(generated, 1).float().mean()


main(prepare, run, steps=120, small=6)
