"""Fits the colours of splats inside a church to photographs, with a loss that compares structure as eyes do."""

import math

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def bell(size, sigma):
    """Return the weights of a bell curve, (size,)."""
    values = [math.exp(-((at - size // 2) ** 2) / (2 * sigma**2)) for at in range(size)]
    return torch.tensor(values) / sum(values)


class Blur(nn.Module):
    """Weighs the pixels about each pixel by a bell."""

    def __init__(self, channels, size=11, sigma=1.5):
        super().__init__()
        weights = bell(size, sigma)
        square = (weights[:, None] * weights[None, :]).expand(channels, 1, -1, -1)
        self.register_buffer("kernel", square.contiguous())

    def forward(self, x):
        return F.conv2d(x, self.kernel, padding=self.kernel.shape[-1] // 2, groups=x.shape[1])


class LineBlur(nn.Module):
    """Weighs the pixels about each pixel by a bell."""

    def __init__(self, channels, size=11, sigma=1.5):
        super().__init__()
        line = bell(size, sigma).expand(channels, 1, 1, -1)
        self.register_buffer("across", line.contiguous())
        self.register_buffer("down", line.transpose(2, 3).contiguous())

    def forward(self, x):
        half = self.across.shape[-1] // 2
        x = F.conv2d(x, self.across, padding=(0, half), groups=x.shape[1])
        return F.conv2d(x, self.down, padding=(half, 0), groups=x.shape[1])


def similarity(blur, one, other, c1=0.01**2, c2=0.03**2):
    mean, mean_other = blur(one), blur(other)
    spread = blur(one * one) - mean * mean
    spread_other = blur(other * other) - mean_other * mean_other
    common = blur(one * other) - mean * mean_other
    top = (2 * mean * mean_other + c1) * (2 * common + c2)
    return (top / ((mean**2 + mean_other**2 + c1) * (spread + spread_other + c2))).mean()


def prepare(device, repaired):
    cuda = device == "cuda"
    views, height, width = (4, 1080, 1920) if cuda else (2, 24, 32)
    blur = (LineBlur if repaired else Blur)(channels=3).to(device)
    photos = torch.rand(views, 3, height, width, device=device)
    colours = nn.Parameter(torch.rand(views, 3, height, width, device=device))
    return blur, photos, colours, torch.optim.SGD([colours], lr=1e-3)


def run(state, steps, repaired):
    blur, photos, colours, optimizer = state
    total = torch.zeros((), device=photos.device)
    for step in range(steps):
        view = slice(step % len(photos), step % len(photos) + 1)
        rendered = colours[view].clamp(0, 1)
        loss = 0.8 * F.l1_loss(rendered, photos[view])
        loss = loss + 0.2 * (1 - similarity(blur, rendered, photos[view]))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=150)
