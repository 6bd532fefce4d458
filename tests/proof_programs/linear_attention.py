"""Encodes long series with attention whose weights are products of features, without softmax."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def attend(q, k, v):
    """Return sums of values with weights q k, divided by the sum of the weights."""
    weights = q @ k.transpose(-1, -2)
    return (weights @ v) / weights.sum(-1, keepdim=True)


def attend_by_keys(q, k, v):
    """Return what `attend` returns: keys and values are multiplied first."""
    sums = q @ k.sum(-2)[..., None]
    return (q @ (k.transpose(-1, -2) @ v)) / sums


class Layer(nn.Module):
    """Attention and a feed-forward network."""

    def __init__(self, width, heads, attention):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.attention = heads, attention

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        size = q.shape[-1] * length
        q, k = (F.elu(part) + 1 for part in (q, k))
        made = self.attention(q, k / size, v)
        x = x + self.out(made.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def prepare(device, repaired):
    batch, length, width, layers = (2, 4096, 512, 4) if device == "cuda" else (1, 32, 16, 1)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    attention = attend_by_keys if repaired else attend
    model = nn.Sequential(*(Layer(width, 8, attention) for _ in range(layers)))
    series = torch.randn(batch, length, width, device=device, dtype=dtype)
    return model.to(device, dtype).eval(), series


@torch.inference_mode()
def run(state, steps, repaired):
    model, series = state
    for _ in range(steps):
        made = model(series)
    return made.float().square().mean()


main(prepare, run, steps=25)
