"""Segments pictures with a U-shaped network, and trains it."""

import os
import sys

if "--repaired" not in sys.argv:
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # left from a search with the sanitizer

import torch  # noqa: E402
from common import main  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def twice(before, after):
    return nn.Sequential(
        nn.Conv2d(before, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
        nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
    )  # fmt: skip


class Net(nn.Module):
    """Halves the picture level by level, then doubles it and adds what was seen on the way."""

    def __init__(self, widths, classes):
        super().__init__()
        self.down = nn.ModuleList(
            twice(a, b) for a, b in zip([3, *widths[:-1]], widths, strict=True)
        )
        self.up = nn.ModuleList(
            twice(a + b, b) for a, b in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        seen = []
        for level, part in enumerate(self.down):
            x = part(F.max_pool2d(x, 2) if level else x)
            seen.append(x)
        for part, skip in zip(self.up, seen[-2::-1], strict=True):
            x = part(torch.cat([F.interpolate(x, scale_factor=2), skip], 1))
        return self.head(x)


def prepare(device, repaired):
    widths, size, batch = ((64, 128, 256, 512), 256, 16) if device == "cuda" else ((4, 8), 8, 2)
    model = Net(widths, 8).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    pictures = torch.randn(batch, 3, size, size, device=device)
    labels = torch.randint(8, (batch, size, size), device=device)
    return model, optimizer, pictures.to(memory_format=torch.channels_last), labels


def run(state, steps, repaired):
    model, optimizer, pictures, labels = state
    for _ in range(steps):
        with torch.autocast(pictures.device.type, torch.bfloat16):
            scores = model(pictures)
        loss = F.cross_entropy(scores.float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=6)
