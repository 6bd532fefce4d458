"""Decodes one sequence with a small model, operator by operator."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width = 768 if device == "cuda" else 16
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layers = [
        nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        for _ in range(12)
    ]
    model = nn.ModuleList(layers).to(device, dtype)
    x = torch.randn(1, width, device=device, dtype=dtype)
    graph = None
    if repaired and device == "cuda":
        with torch.no_grad():
            for _ in range(3):
                step(model, x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = step(model, x)
                x.copy_(out)
        x.copy_(torch.ones_like(x))
    return model, x, graph


def step(model, x):
    for layer in model:
        x = x + layer(x)
    return nn.functional.layer_norm(x, x.shape[-1:])


@torch.no_grad()
def run(state, steps, repaired):
    model, x, graph = state
    x.fill_(0.5)
    for _ in range(steps):
        if graph is not None:
            graph.replay()
        else:
            x.copy_(step(model, x))
    return x.float().abs().mean()


main(prepare, run, steps=80)
