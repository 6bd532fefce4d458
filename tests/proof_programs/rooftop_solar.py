"""Finds solar panels on roofs in pictures from the air, with a detector that is trained in mixed precision."""

import torch
from common import main
from torch import nn


def conv(inner, outer, stride=1):
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.SiLU()
    )


class Bottleneck(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = conv(width, width // 2), conv(width // 2, width)

    def forward(self, x):
        return x + self.second(self.first(x))


class Detector(nn.Module):
    def __init__(self, width):
        super().__init__()
        parts = [conv(3, width, 2)]
        for scale in (1, 2, 4):
            parts += [conv(width * scale, 2 * width * scale, 2), Bottleneck(2 * width * scale)]
            parts += [Bottleneck(2 * width * scale)]
        self.trunk, self.head = nn.Sequential(*parts), nn.Conv2d(8 * width, 6, 1)

    def forward(self, x):
        return self.head(self.trunk(x))


def prepare(device, repaired):
    width, size, batch = (64, 640, 16) if device == "cuda" else (4, 32, 2)
    model = Detector(width).to(device)
    pictures = torch.rand(2, batch, 3, size, size, device=device)
    if repaired:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True)
    return (
        model,
        optimizer,
        pictures,
        torch.rand(2, batch, 6, size // 16, size // 16, device=device),
    )


def run(state, steps, repaired):
    model, optimizer, pictures, panels = state
    total = torch.zeros((), device=pictures.device)
    for step in range(steps):
        x = pictures[step % 2]
        if repaired:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, torch.bfloat16):
            guess = model(x)
        loss = nn.functional.binary_cross_entropy_with_logits(guess.float(), panels[step % 2])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=60)
