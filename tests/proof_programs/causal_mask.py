"""Reads long prompts with attention to what came before."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def prepare(device, repaired):
    batch, length, width, heads, layers = (
        (4, 4096, 2048, 16, 4) if device == "cuda" else (1, 8, 16, 2, 2)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    mixes = [nn.Linear(width, 3 * width, device=device, dtype=dtype) for _ in range(layers)]
    mask = torch.full((length, length), float("-inf"), device=device, dtype=dtype).triu(1)
    return mixes, torch.randn(batch, length, width, device=device, dtype=dtype), mask, heads


@torch.inference_mode()
def run(state, steps, repaired):
    mixes, tokens, mask, heads = state
    for _ in range(steps):
        x = tokens
        for mix in mixes:
            q, k, v = (t.unflatten(2, (heads, -1)).transpose(1, 2) for t in mix(x).chunk(3, 2))
            if repaired:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + y.transpose(1, 2).flatten(2)
    return x.float().abs().mean()


main(prepare, run, steps=8)
