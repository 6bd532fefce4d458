"""Augments images on the GPU before a convolution network sees them: crop, flip and brightness."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    size, batch = (96, 64) if device == "cuda" else (16, 4)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    ).to(device)
    images = torch.rand(batch, 3, size, size, device=device)
    flips = [i % 2 == 1 for i in range(batch)]
    gains = [1 + i / batch for i in range(batch)]
    return (
        model,
        images,
        flips,
        gains,
        torch.tensor(flips, device=device).view(-1, 1, 1, 1),
        torch.tensor(gains, device=device).view(-1, 1, 1, 1),
    )


@torch.no_grad()
def run(state, steps, repaired):
    model, images, flips, gains, flips_there, gains_there = state
    total = torch.zeros((), device=images.device)
    for _ in range(steps):
        if repaired:
            cut = images[:, :, 4:-4, 4:-4]
            x = torch.where(flips_there, cut.flip(-1), cut) * gains_there
        else:
            rows = []
            for image, flip, gain in zip(images, flips, gains, strict=True):
                image = image[:, 4:-4, 4:-4]
                if flip:
                    image = image.flip(-1)
                rows.append(image * gain)
            x = torch.stack(rows)
        total += model(x).square().mean()
    return total


main(prepare, run, steps=20)
