"""Trains a grader of kidney slides on patches, of which each is stained a little otherwise each time it is seen."""

from itertools import islice

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

STAINS = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11], [0.27, 0.57, 0.78]], np.float32)


class Patches(Dataset):
    """Patches of slides, cut on demand from what is in memory."""

    def __init__(self, slides, side, size):
        draw = np.random.default_rng(1)
        self.slides = draw.integers(30, 256, (slides, side, side, 3), dtype=np.uint8)
        self.size, self.from_stains = size, np.linalg.inv(STAINS)

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        draw = np.random.default_rng(index)
        slide = self.slides[index % len(self.slides)]
        top, left = draw.integers(slide.shape[0] - self.size, size=2)
        patch = slide[top : top + self.size, left : left + self.size].astype(np.float32)
        density = -np.log((patch + 1) / 257)
        stains = density @ self.from_stains
        stains = stains * draw.uniform(0.9, 1.1, 3).astype(np.float32)
        stains += draw.uniform(-0.02, 0.02, 3).astype(np.float32)
        patch = np.exp(-(stains @ STAINS)).clip(0, 1)
        turned = np.rot90(patch, draw.integers(4)).transpose(2, 0, 1)
        return torch.from_numpy(np.ascontiguousarray(turned)), index % 5


class Grader(nn.Module):
    def __init__(self, width, grades):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.head = nn.Linear(width, grades)

    def forward(self, x):
        x = self.stem(x)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        return self.head(x.mean(dim=(2, 3)))


def prepare(device, repaired):
    cuda = device == "cuda"
    batch, side, size, width = (16, 1024, 224, 96) if cuda else (2, 24, 16, 8)
    patches = Patches(4, side, size)
    if repaired:
        loader = DataLoader(patches, batch, num_workers=8, persistent_workers=True, pin_memory=cuda)
    else:
        loader = DataLoader(patches, batch, pin_memory=cuda)
    model = Grader(width, grades=5).to(device)
    return loader, model, torch.optim.SGD(model.parameters(), lr=1e-4), device


def run(state, steps, repaired):
    loader, model, optimizer, device = state
    total = torch.zeros((), device=device)
    for pixels, grades in islice(loader, steps):
        pixels = pixels.to(device, non_blocking=True)
        grades = grades.to(device, non_blocking=True)
        loss = F.cross_entropy(model(pixels), grades)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=12)
