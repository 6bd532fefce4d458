"""Trains a U-Net that draws contours of cells in pictures of a microscope, in bfloat16."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Twice(nn.Module):
    """Two convolutions."""

    def __init__(self, before, after):
        super().__init__()
        self.a = nn.Conv2d(before, after, 3, padding=1)
        self.b = nn.Conv2d(after, after, 3, padding=1)

    def forward(self, x):
        return F.leaky_relu(self.b(F.leaky_relu(self.a(x), 0.1)), 0.1)


class UNet(nn.Module):
    """Down by halves and up again, with what was found on the way down beside it."""

    def __init__(self, width, depth):
        super().__init__()
        sizes = [width << k for k in range(depth)]
        self.down = nn.ModuleList(
            Twice(before, after) for before, after in zip([1, *sizes], sizes, strict=False)
        )
        self.widen = nn.ModuleList(
            nn.ConvTranspose2d(2 * size, size, 2, 2) for size in reversed(sizes[:-1])
        )
        self.up = nn.ModuleList(Twice(2 * size, size) for size in reversed(sizes[:-1]))
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        beside = []
        for number, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if number else x)
            beside.append(x)
        beside.pop()
        for widen, block in zip(self.widen, self.up, strict=True):
            x = block(torch.cat([beside.pop(), widen(x)], 1))
        return self.out(x)


def prepare(device, repaired):
    width, depth, batch, size = (64, 4, 12, 256) if device == "cuda" else (4, 3, 2, 16)
    model = UNet(width, depth).to(device)
    pictures = torch.randn(2, batch, 1, size, size, device=device)
    labels = (torch.rand(2, batch, size, size, device=device) < 0.2).long()
    if repaired:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    return model, optimizer, pictures, labels, device


def run(state, steps, repaired):
    model, optimizer, pictures, labels, device = state
    layout = torch.channels_last if repaired else torch.contiguous_format
    total = torch.zeros((), device=device)
    for step in range(steps):
        x = pictures[step % 2].to(memory_format=layout)
        with torch.autocast(device, torch.bfloat16):
            guesses = model(x)
        loss = F.cross_entropy(guesses.float(), labels[step % 2])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=50)
