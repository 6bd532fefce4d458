"""Decodes a token of a batch of requests: eight heads of queries share a head of keys and values."""

import torch
from common import main
from torch.nn import functional as F


def prepare(device, repaired):
    batch, heads, shared, past, width, layers = (
        (16, 32, 4, 8192, 128, 4) if device == "cuda" else (2, 8, 2, 16, 8, 2)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    caches = [
        torch.randn(2, batch, shared, past, width, device=device, dtype=dtype)
        for _ in range(layers)
    ]
    weights = [
        torch.randn(heads * width, heads * width, device=device, dtype=dtype) / 64
        for _ in range(layers)
    ]
    return caches, weights, torch.randn(batch, heads * width, device=device, dtype=dtype)


def attend(query, keys, values, repaired):
    batch, shared, _, width = keys.shape
    groups = query.shape[1] // shared // width
    if repaired:
        query = query.view(batch, shared, groups, width)
    else:
        query = query.view(batch, shared * groups, 1, width)
        keys, values = (t.repeat_interleave(groups, dim=1) for t in (keys, values))
    return F.scaled_dot_product_attention(query, keys, values).reshape(batch, -1)


@torch.no_grad()
def run(state, steps, repaired):
    caches, weights, first = state
    for _ in range(steps):
        x = first
        for (keys, values), weight in zip(caches, weights, strict=True):
            x = x + attend(x @ weight, keys, values, repaired)
    return x.float().abs().mean()


main(prepare, run, steps=20)
