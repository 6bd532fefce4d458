"""Encodes a text with attention within a window and within documents."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

WINDOW, HEADS = 512, 8


def prepare(device, repaired):
    length, width, layers = (4096, 1024, 4) if device == "cuda" else (16, 32, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    mixes = [nn.Linear(width, 3 * width, device=device, dtype=dtype) for _ in range(layers)]
    x = torch.randn(2, length, width, device=device, dtype=dtype)
    ends = torch.arange(length) // 700
    return mixes, x, ends, ends.to(device)


def allowed(document):
    place = torch.arange(len(document), device=document.device)
    near = (place[:, None] - place[None, :]).abs() < WINDOW
    return near & (document[:, None] == document[None, :])


@torch.no_grad()
def run(state, steps, repaired):
    mixes, tokens, on_host, on_device = state
    for _ in range(steps):
        x = tokens
        if repaired:
            mask = allowed(on_device)
        else:
            mask = allowed(on_host).to(x.device)
        for mix in mixes:
            q, k, v = (t.unflatten(2, (HEADS, -1)).transpose(1, 2) for t in mix(x).chunk(3, 2))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + y.transpose(1, 2).flatten(2)
    return x.float().abs().mean()


main(prepare, run, steps=6)
