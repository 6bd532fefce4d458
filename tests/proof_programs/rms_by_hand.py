"""Reads prompts with a decoder whose norms are written out as in the paper."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Norm(nn.Module):
    """Divides by the root of the mean square, in single precision."""

    def __init__(self, width, fused):
        super().__init__()
        self.weight, self.fused = nn.Parameter(torch.ones(width)), fused

    def forward(self, x):
        if self.fused:
            return F.rms_norm(x, x.shape[-1:], self.weight, 1e-6)
        wide = x.to(torch.float32)
        mean = wide.pow(2).mean(-1, keepdim=True)
        return self.weight * (wide * torch.rsqrt(mean + 1e-6)).to(x.dtype)


class Layer(nn.Module):
    """Attention with normed queries and keys, and a feed-forward part."""

    def __init__(self, width, heads, fused):
        super().__init__()
        self.heads = heads
        self.first, self.second = Norm(width, fused), Norm(width, fused)
        self.q_norm, self.k_norm = Norm(width // heads, fused), Norm(width // heads, fused)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.unbind(2)
        q, k = self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.silu(self.up(self.second(x))))


def prepare(device, repaired):
    width, heads, layers, batch, length = (
        (1024, 8, 8, 32, 1024) if device == "cuda" else (16, 2, 2, 2, 8)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    words = nn.Embedding(32000 if device == "cuda" else 50, width)
    parts = [Layer(width, heads, repaired) for _ in range(layers)]
    model = nn.Sequential(words, *parts, Norm(width, repaired)).to(device, dtype).eval()
    return model, torch.randint(words.num_embeddings, (batch, length), device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, tokens = state
    for _ in range(steps):
        last = model(tokens)[:, -1]
    return last.float().square().mean()


main(prepare, run, steps=10)
