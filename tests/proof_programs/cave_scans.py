"""Cleans scans of caves, slice by slice: each channel of a volume is filtered within its slices, then channels are mixed."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Filtered(nn.Module):
    """A filter of 7 by 7 for each channel of volumes (batch, channels, slices, rows, columns)."""

    def __init__(self, channels, flat):
        super().__init__()
        self.flat = flat
        self.filters = nn.Parameter(torch.randn(channels, 1, 1, 7, 7) / 7)

    def forward(self, x):
        channels = len(self.filters)
        if not self.flat:
            return F.conv3d(x, self.filters, padding=(0, 3, 3), groups=channels)
        slices = x.transpose(1, 2)
        y = F.conv2d(slices.flatten(0, 1), self.filters[:, :, 0], padding=3, groups=channels)
        return y.unflatten(0, slices.shape[:2]).transpose(1, 2)


class Cleaner(nn.Module):
    def __init__(self, channels, depth, flat):
        super().__init__()
        self.first, self.last = nn.Conv3d(1, channels, 1), nn.Conv3d(channels, 1, 1)
        self.filters = nn.ModuleList(Filtered(channels, flat) for _ in range(depth))
        self.mixers = nn.ModuleList(nn.Conv3d(channels, channels, 1) for _ in range(depth))

    def forward(self, x):
        x = self.first(x)
        for filtered, mixer in zip(self.filters, self.mixers, strict=True):
            x = x + F.relu(mixer(filtered(x)))
        return self.last(x)


def prepare(device, repaired):
    channels, depth, slices, side = (32, 4, 32, 160) if device == "cuda" else (3, 2, 3, 9)
    torch.manual_seed(11)
    cleaner = Cleaner(channels, depth, flat=repaired).to(device).eval()
    return cleaner, torch.randn(2, 1, 1, slices, side, side, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    cleaner, scans = state
    total = torch.zeros((), device=scans.device)
    for step in range(steps):
        total += cleaner(scans[step % 2]).abs().mean()
    return total / steps


main(prepare, run, steps=40)
