"""Tells how well a network finds sheep, dogs and fences in pictures of pastures: a table of what was there and what was found."""

import numpy as np
import torch
from common import main
from torch import nn


class Finder(nn.Module):
    def __init__(self, width, kinds):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, width, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()),
            nn.Conv2d(width, kinds, 1),
        )

    def forward(self, pictures):
        return self.layers(pictures)


class TableOnHost:
    """Counts (there, found) of all kinds, of numpy arrays."""

    def __init__(self, kinds):
        self.kinds, self.counts = kinds, np.zeros((kinds, kinds), dtype=np.int64)

    def add(self, there, found):
        there, found = there.cpu().numpy().ravel(), found.cpu().numpy().ravel()
        pairs = np.bincount(there * self.kinds + found, minlength=self.kinds**2)
        self.counts += pairs.reshape(self.kinds, self.kinds)

    def mean_overlap(self):
        both = np.diag(self.counts)
        return float((both / (self.counts.sum(0) + self.counts.sum(1) - both + 1)).mean())


class TableOnDevice:
    """The same counts, which stay where pictures are until they are asked for."""

    def __init__(self, kinds, device):
        self.kinds = kinds
        self.counts = torch.zeros(kinds * kinds, dtype=torch.int64, device=device)

    def add(self, there, found):
        pairs = (there * self.kinds + found).flatten()
        self.counts += (pairs == torch.arange(len(self.counts), device=pairs.device)[:, None]).sum(1)

    def mean_overlap(self):
        counts = self.counts.view(self.kinds, self.kinds).double()
        both = counts.diagonal()
        return float((both / (counts.sum(0) + counts.sum(1) - both + 1)).mean())


def prepare(device, repaired):
    cuda = device == "cuda"
    pictures, side, width, kinds = (8, 384, 32, 4) if cuda else (2, 8, 4, 3)
    torch.manual_seed(5)
    finder = Finder(width, kinds).to(device).eval()
    seen = torch.rand(2, pictures, 3, side, side, device=device)
    there = torch.randint(0, kinds, (2, pictures, side, side), device=device)
    return finder, seen, there, kinds


@torch.inference_mode()
def run(state, steps, repaired):
    finder, seen, there, kinds = state
    table = TableOnDevice(kinds, seen.device) if repaired else TableOnHost(kinds)
    for step in range(steps):
        found = finder(seen[step % 2]).argmax(1)
        table.add(there[step % 2], found)
    return table.mean_overlap()


main(prepare, run, steps=60)
