"""Answers travellers in long chats, sixteen at once: each step reads the chat so far and says one more word."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class GrowingCache:
    """Keys and values of all words so far, (chats, heads, words, size)."""

    def __init__(self, keys, values, room):
        self.keys, self.values = keys, values

    def append(self, key, value):
        self.keys = torch.cat([self.keys, key], dim=2)
        self.values = torch.cat([self.values, value], dim=2)
        return self.keys, self.values


class RoomyCache:
    """Keys and values of all words so far, (chats, heads, words, size), with room for what will come."""

    def __init__(self, keys, values, room):
        self.keys = F.pad(keys, (0, 0, 0, room))
        self.values = F.pad(values, (0, 0, 0, room))
        self.words = keys.shape[2]

    def append(self, key, value):
        self.keys[:, :, self.words : self.words + 1] = key
        self.values[:, :, self.words : self.words + 1] = value
        self.words += 1
        return self.keys[:, :, : self.words], self.values[:, :, : self.words]


class Layer(nn.Module):
    def __init__(self, heads, size):
        super().__init__()
        width = heads * size
        self.heads, self.size = heads, size
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, cache):
        qkv = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, self.size))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        keys, values = cache.append(k, v)
        read = F.scaled_dot_product_attention(q, keys, values)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norms[1](x))))


def prepare(device, repaired):
    cuda = device == "cuda"
    chats, heads, size, depth, words = (16, 16, 128, 6, 2048) if cuda else (2, 2, 8, 2, 10)
    dtype = torch.bfloat16 if cuda else torch.float32
    layers = nn.ModuleList(Layer(heads, size) for _ in range(depth)).to(device, dtype).eval()
    said = torch.randn(depth, 2, chats, heads, words, size, device=device, dtype=dtype)
    x = torch.randn(chats, 1, heads * size, device=device, dtype=dtype)
    return layers, said, x


@torch.inference_mode()
def run(state, steps, repaired):
    layers, said, x = state
    total = torch.zeros((), device=x.device)
    kind = RoomyCache if repaired else GrowingCache
    caches = [kind(keys, values, room=steps) for keys, values in said]
    for _ in range(steps):
        for layer, cache in zip(layers, caches, strict=True):
            x = layer(x, cache)
        x = F.rms_norm(x, x.shape[-1:])
        total += x.float().abs().mean()
    return total / steps


main(prepare, run, steps=300)
