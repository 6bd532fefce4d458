"""Finds faults in large pictures from a production line, which arrive in pinned memory."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Finder(nn.Module):
    """A fast network: strided convolutions, and a map of where a fault is likely."""

    def __init__(self, widths):
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Conv2d(a, b, 3, 2, 1) for a, b in zip([3, *widths[:-1]], widths, strict=True)
        )
        self.map = nn.Conv2d(widths[-1], 1, 1)

    def forward(self, x):
        for part in self.parts:
            x = F.relu(part(x))
        return torch.sigmoid(self.map(x))


class InTurn:
    """Sends a picture when it is asked for."""

    def __init__(self, pictures, device):
        self.pictures, self.device = pictures, device

    def batches(self, steps):
        for step in range(steps):
            yield self.pictures[step % len(self.pictures)].to(self.device, non_blocking=True)


class Ahead:
    """Sends the next pictures on a stream of its own while the ones before are looked at."""

    def __init__(self, pictures, device):
        self.pictures, self.device, self.stream = pictures, device, torch.cuda.Stream()

    def send(self, step):
        with torch.cuda.stream(self.stream):
            return self.pictures[step % len(self.pictures)].to(self.device, non_blocking=True)

    def batches(self, steps):
        coming = self.send(0)
        for step in range(steps):
            torch.cuda.current_stream().wait_stream(self.stream)
            here = coming
            here.record_stream(torch.cuda.current_stream())
            if step + 1 < steps:
                coming = self.send(step + 1)
            yield here


def prepare(device, repaired):
    size, batch, widths = (1024, 24, (48, 96, 192, 384)) if device == "cuda" else (16, 2, (4, 4))
    model = Finder(widths).to(device, memory_format=torch.channels_last).eval()
    pictures = [torch.randint(256, (batch, size, size, 3), dtype=torch.uint8) for _ in range(3)]
    if device == "cuda":
        pictures = [picture.pin_memory() for picture in pictures]
        model = model.half()
    source = Ahead if repaired and device == "cuda" else InTurn
    return model, source(pictures, device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, source = state
    dtype = model.map.weight.dtype
    worst = 0
    for pictures in source.batches(steps):
        x = pictures.permute(0, 3, 1, 2).to(dtype) / 255
        worst = worst + model(x).float().amax()
    return worst / steps


main(prepare, run, steps=40)
