"""Generates with weights that are kept in eight bits."""

import torch
from common import main
from torch.nn import functional as F


def prepare(device, repaired):
    width, tokens, layers = (8192, 64, 8) if device == "cuda" else (16, 2, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layers = [
        (
            torch.randint(-127, 128, (width, width), device=device, dtype=torch.int8),
            torch.rand(width, 1, device=device, dtype=dtype) / (64 * width**0.5),
        )
        for _ in range(layers)
    ]
    if repaired:
        layers = [(weight.to(dtype) * scale, None) for weight, scale in layers]
    return layers, torch.randn(tokens, width, device=device, dtype=dtype)


@torch.inference_mode()
def run(state, steps, repaired):
    layers, tokens = state
    for _ in range(steps):
        x = tokens
        for weight, scale in layers:
            if not repaired:
                weight = weight.to(x.dtype) * scale
            x = F.rms_norm(x + x @ weight.T, x.shape[-1:])
    return x.float().abs().mean()


main(prepare, run, steps=30)
