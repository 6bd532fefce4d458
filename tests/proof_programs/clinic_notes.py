"""Drafts notes for the patients of a clinic: a step reads all that was said before, with few keys for many queries."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, heads, groups, size, native):
        super().__init__()
        self.heads, self.groups, self.size, self.native = heads, groups, size, native
        self.q = nn.Linear(heads * size, heads * size, bias=False)
        self.kv = nn.Linear(heads * size, 2 * groups * size, bias=False)
        self.out = nn.Linear(heads * size, heads * size, bias=False)

    def forward(self, x, said, at):
        q = self.q(x).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (2, self.groups, self.size)).unbind(2)
        said[0, :, :, at], said[1, :, :, at] = k[:, 0], v[:, 0]
        k, v = said
        if self.native:
            read = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        else:
            k = k.repeat_interleave(self.heads // self.groups, dim=1)
            v = v.repeat_interleave(self.heads // self.groups, dim=1)
            read = F.scaled_dot_product_attention(q, k, v)
        return self.out(read.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, heads, groups, size, native):
        super().__init__()
        width = heads * size
        self.attention = Attention(heads, groups, size, native)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x, said, at):
        x = x + self.attention(self.norms[0](x), said, at)
        return x + self.down(F.silu(self.up(self.norms[1](x))))


def prepare(device, repaired):
    cuda = device == "cuda"
    patients, heads, groups, size, depth, length = (
        (16, 32, 8, 128, 8, 4096) if cuda else (2, 4, 2, 8, 2, 12)
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    layers = nn.ModuleList(Layer(heads, groups, size, native=repaired) for _ in range(depth))
    layers = layers.to(device, dtype).eval()
    said = torch.randn(depth, 2, patients, groups, length, size, device=device, dtype=dtype)
    return layers, said, torch.randn(patients, 1, heads * size, device=device, dtype=dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    layers, said, x = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        for layer, heard in zip(layers, said, strict=True):
            x = layer(x, heard, step % heard.shape[3])
        x = F.rms_norm(x, x.shape[-1:])
        total += x.float().abs().mean()
    return total / steps


main(prepare, run, steps=300)
