"""A gated unit with a rotary position code, as published: each operation on its own."""

import torch
from common import main


def gate(x, g, sine, cosine):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    placed = x * cosine + turned * sine
    swish = g * torch.sigmoid(g)
    return placed * swish + 0.5 * placed


def prepare(device, repaired):
    rows, width = (65536, 2048) if device == "cuda" else (16, 8)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x, g = (torch.randn(rows, width, device=device, dtype=dtype) for _ in range(2))
    angle = torch.rand(rows, width, device=device)
    work = torch.compile(gate) if repaired and device == "cuda" else gate
    return work, x, g, angle.sin().to(dtype), angle.cos().to(dtype)


@torch.no_grad()
def run(state, steps, repaired):
    work, x, g, sine, cosine = state
    for _ in range(steps):
        y = work(x, g, sine, cosine)
    return y.float().mean()


main(prepare, run, steps=60)
