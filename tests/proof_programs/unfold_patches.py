"""Runs pictures through a stack of 3 by 3 filters."""

import torch
from common import main
from torch.nn import functional as F


def prepare(device, repaired):
    batch, width, size, layers = (32, 256, 64, 6) if device == "cuda" else (2, 4, 8, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    filters = [
        torch.randn(width, width, 3, 3, device=device, dtype=dtype) / (3 * width**0.5)
        for _ in range(layers)
    ]
    x = torch.randn(batch, width, size, size, device=device, dtype=dtype)
    if repaired:
        x = x.to(memory_format=torch.channels_last)
        filters = [f.to(memory_format=torch.channels_last) for f in filters]
    return x, filters


@torch.inference_mode()
def run(state, steps, repaired):
    pictures, filters = state
    for _ in range(steps):
        x = pictures
        for weight in filters:
            if repaired:
                x = F.conv2d(x, weight, padding=1)
            else:
                patches = F.unfold(x, 3, padding=1)
                x = (weight.flatten(1) @ patches).unflatten(2, x.shape[2:])
            x = x.relu_()
    return x.float().mean()


main(prepare, run, steps=8)
