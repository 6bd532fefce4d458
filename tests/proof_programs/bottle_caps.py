"""Finds faults of bottle caps on a belt: patches of a photograph are compared with a bank of patches of sound caps."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Patches(nn.Module):
    """Vectors (patches, width) of a photograph (3, side, side), one for eight by eight pixels."""

    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(3, width, 8, stride=8)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))

    def forward(self, photo):
        x = self.first(photo[None])
        for conv in self.convs:
            x = x + F.relu(conv(x))
        return x[0].flatten(1).t()


def gaps_of(patches, bank):
    """Squares of distances (patches, entries) of all patches and entries."""
    return (patches[:, None] - bank[None]).pow(2).sum(2)


def gaps_by_product(patches, bank):
    """The same, from a product: |p - b|^2 = |p|^2 - 2 p b + |b|^2."""
    lengths = patches.square().sum(1)[:, None] + bank.square().sum(1)
    return torch.addmm(lengths, patches, bank.t(), alpha=-2).clamp_min(0)


def prepare(device, repaired):
    cuda = device == "cuda"
    side, width, entries = (224, 128, 4096) if cuda else (32, 8, 20)
    torch.manual_seed(20)
    patches = Patches(width).to(device).eval()
    bank = torch.randn(entries, width, device=device)
    photos = torch.randn(4, 3, side, side, device=device)
    return patches, bank, photos, gaps_by_product if repaired else gaps_of


@torch.inference_mode()
def run(state, steps, repaired):
    patches, bank, photos, gaps = state
    total = torch.zeros((), device=bank.device)
    for step in range(steps):
        nearest = gaps(patches(photos[step % 4]), bank).amin(1)
        total += nearest.sqrt().amax()
    return total / steps


main(prepare, run, steps=300)
