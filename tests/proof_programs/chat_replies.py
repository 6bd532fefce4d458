"""Writes replies in sixteen chats at once, a word for each in a step, with a decoder that keeps what it read."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Joined:
    """What one layer has read so far."""

    def __init__(self, k, v, room):
        self.start, self.k, self.v = (k, v), k, v

    def reset(self):
        self.k, self.v = self.start

    def update(self, k, v):
        self.k = torch.cat([self.k, k], 2)
        self.v = torch.cat([self.v, v], 2)
        return self.k, self.v


class Reserved:
    """The same, in a place that was made for it."""

    def __init__(self, k, v, room):
        batch, heads, self.first, size = k.shape
        self.k, self.v = k.new_zeros(2, batch, heads, self.first + room, size)
        self.k[:, :, : self.first], self.v[:, :, : self.first] = k, v
        self.reset()

    def reset(self):
        self.length = self.first

    def update(self, k, v):
        at, self.length = self.length, self.length + k.shape[2]
        self.k[:, :, at : self.length], self.v[:, :, at : self.length] = k, v
        return self.k[:, :, : self.length], self.v[:, :, : self.length]


class Layer(nn.Module):
    def __init__(self, heads, size):
        super().__init__()
        width, self.heads = heads * size, heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, kept):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        k, v = kept.update(k.transpose(1, 2), v.transpose(1, 2))
        read = F.scaled_dot_product_attention(q.transpose(1, 2), k, v)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norms[1](x))))


def prepare(device, repaired):
    cuda = device == "cuda"
    chats, heads, size, depth, read, room = (
        (16, 16, 128, 12, 2048, 420) if cuda else (2, 2, 8, 2, 6, 8)
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    layers = nn.ModuleList(Layer(heads, size) for _ in range(depth)).to(device, dtype).eval()
    kind = Reserved if repaired else Joined
    kept = []
    for _ in range(depth):
        k, v = torch.randn(2, chats, heads, read, size, device=device, dtype=dtype)
        kept.append(kind(k, v, room))
    start = torch.randn(chats, 1, heads * size, device=device, dtype=dtype)
    return layers, kept, start


@torch.inference_mode()
def run(state, steps, repaired):
    layers, kept, x = state
    for one in kept:
        one.reset()
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        for layer, one in zip(layers, kept, strict=True):
            x = layer(x, one)
        x = F.rms_norm(x, x.shape[-1:])
        total += x.float().abs().mean()
    return total / steps


main(prepare, run, steps=400)
