"""Embeds photographs for a search of similar ones: they are made small, normalised, and go through a network."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def shrink(photos, size):
    """Return photographs of bytes as numbers about 0, of another size."""
    numbers = photos.float() / 255
    numbers = F.interpolate(numbers, (size, size), mode="bilinear", antialias=True)
    return (numbers - 0.45) / 0.225


def prepare(device, repaired):
    torch.set_num_threads(4)
    batch, height, width, channels, size = (
        (24, 480, 640, 64, 224) if device == "cuda" else (2, 48, 64, 4, 16)
    )
    net = nn.Sequential(
        nn.Conv2d(3, channels, 7, 4, 3), nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(2 * channels, 4 * channels, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * channels, 128),
    )  # fmt: skip
    photos = [torch.randint(256, (batch, 3, height, width), dtype=torch.uint8) for _ in range(3)]
    if device == "cuda":
        photos = [some.pin_memory() for some in photos]
    return net.to(device).eval(), photos, size, device


@torch.inference_mode()
def run(state, steps, repaired):
    net, photos, size, device = state
    total = torch.zeros((), device=device)
    for step in range(steps):
        some = photos[step % len(photos)]
        if repaired:
            small = shrink(some.to(device, non_blocking=True), size)
        else:
            small = shrink(some, size).to(device)
        total += net(small).square().mean()
    return total / steps


main(prepare, run, steps=35)
