"""Marks spots in slices of lungs: a network that sees windows of a slice, whose overlapping answers are put together."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Marker(nn.Module):
    """From windows (windows, 1, side, side) to marks of the same size."""

    def __init__(self, width, depth):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 1, 1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(depth))

    def forward(self, windows):
        x = self.first(windows)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.relu(norm(conv(x)))
        return self.last(x)


class Windows:
    def __init__(self, marker, side, step, together):
        self.marker, self.side, self.step, self.together = marker, side, step, together

    def cut(self, slice_):
        windows = F.unfold(slice_[None, None], self.side, stride=self.step)
        return windows[0].t().reshape(-1, 1, self.side, self.side)

    def put_together(self, marks, size):
        columns = marks.flatten(1).t()[None]
        fold = nn.Fold((size, size), self.side, stride=self.step)
        return fold(columns) / fold(torch.ones_like(columns))

    def marked(self, slice_):
        windows = self.cut(slice_)
        if self.together:
            marks = torch.cat([self.marker(some) for some in windows.split(self.together)])
        else:
            marks = torch.cat([self.marker(window[None]) for window in windows])
        return self.put_together(marks, len(slice_))


def prepare(device, repaired):
    cuda = device == "cuda"
    size, side, step, width, depth = (512, 96, 32, 16, 10) if cuda else (16, 8, 4, 4, 2)
    torch.manual_seed(8)
    marker = Marker(width, depth).to(device).eval()
    slices = torch.randn(4, size, size, device=device)
    return Windows(marker, side, step, 49 if repaired else 0), slices


@torch.inference_mode()
def run(state, steps, repaired):
    windows, slices = state
    total = torch.zeros((), device=slices.device)
    for step in range(steps):
        total += windows.marked(slices[step % 4]).square().mean()
    return total / steps


main(prepare, run, steps=12)
