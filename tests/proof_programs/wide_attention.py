"""An encoder in bfloat16 whose attention takes its inputs in single precision."""

import torch
from common import main
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


def prepare(device, repaired):
    width, tokens, batch = (1024, 2048, 8) if device == "cuda" else (16, 8, 2)
    dtype = torch.bfloat16
    mixed = nn.Linear(width, 3 * width).to(device, dtype)
    out = nn.Linear(width, width).to(device, dtype)
    return mixed, out, torch.randn(batch, tokens, width, device=device, dtype=dtype)


@torch.no_grad()
def run(state, steps, repaired):
    mixed, out, x = state
    batch, tokens, width = x.shape
    heads = max(1, width // 64)
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        parts = mixed(x).view(batch, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        if repaired:
            y = scaled_dot_product_attention(*parts)
        else:
            q, k, v = (part.float() for part in parts)
            y = scaled_dot_product_attention(q, k, v).to(x.dtype)
        total += out(y.transpose(1, 2).reshape(x.shape)).float().square().mean()
    return total


main(prepare, run, steps=40)
