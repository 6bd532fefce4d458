"""Closes gaps in maps of rivers: water spreads over a square (dilation) and draws back again (erosion)."""

import torch
from common import main
from torch.nn import functional as F


class Closing:
    """Takes the largest number of a square at once, or along rows and then along columns."""

    def __init__(self, size, in_turn):
        self.size, self.in_turn = size, in_turn

    def spread(self, x):
        size, margin = self.size, self.size // 2
        if self.in_turn:
            x = F.max_pool2d(x, (1, size), stride=1, padding=(0, margin))
            return F.max_pool2d(x, (size, 1), stride=1, padding=(margin, 0))
        return F.max_pool2d(x, size, stride=1, padding=margin)

    def __call__(self, x):
        return -self.spread(-self.spread(x))


def rivers(maps, side, device):
    """Return how surely each place is water, with gaps."""
    coarse = torch.randn(maps, 1, side // 8 + 1, side // 8 + 1, device=device)
    smooth = F.interpolate(coarse, size=(side, side), mode="bilinear")
    return torch.sigmoid(4 * smooth) * (torch.rand_like(smooth) > 0.2)


def prepare(device, repaired):
    maps, side, size = (8, 2048, 11) if device == "cuda" else (2, 32, 5)
    return rivers(maps, side, device), Closing(size, in_turn=repaired)


@torch.inference_mode()
def run(state, steps, repaired):
    maps, close = state
    total = torch.zeros((), device=maps.device)
    for _ in range(steps):
        total += (close(maps) > 0.5).float().mean()
    return total / steps


main(prepare, run, steps=350)
