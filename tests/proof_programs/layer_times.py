"""A deep network of which each layer is timed, as somebody left it in after a search for slow ones."""

import time

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width, batch = (768, 512) if device == "cuda" else (8, 4)
    blocks = [
        nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(24)
    ]
    return nn.ModuleList(blocks).to(device), torch.randn(batch, width, device=device)


@torch.no_grad()
def run(state, steps, repaired):
    blocks, x = state
    spent = [0.0] * len(blocks)
    for _ in range(steps):
        h = x
        for at, block in enumerate(blocks):
            start = time.perf_counter()
            h = h + block(h)
            if not repaired and x.is_cuda:
                torch.cuda.synchronize()
            spent[at] += time.perf_counter() - start
    return h.mean()


main(prepare, run, steps=60)
