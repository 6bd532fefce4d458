"""Learns kinds of flowers from slides, which are cut, turned and dyed a little before a network sees them."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Slides(Dataset):
    def __init__(self, slides, count, cut, kinds):
        self.slides, self.count, self.cut, self.kinds = slides, count, cut, kinds

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        rng = np.random.default_rng(number)
        slide = self.slides[number % len(self.slides)]
        top, begin = rng.integers(0, slide.shape[0] - self.cut + 1, 2)
        x = slide[top : top + self.cut, begin : begin + self.cut].astype(np.float32) / 255
        x = np.rot90(x, rng.integers(4))
        x = np.clip(x, 1e-3, 1) ** rng.uniform(0.8, 1.25)
        x = (x - x.mean((0, 1))) / (x.std((0, 1)) + 1e-5)
        return np.ascontiguousarray(x.transpose(2, 0, 1)), number % self.kinds


class Kinds(nn.Module):
    def __init__(self, width, kinds):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, width, 4, 4), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, kinds)),
        )

    def forward(self, x):
        return self.layers(x)


def prepare(device, repaired):
    cuda = device == "cuda"
    side, cut, width, kinds, batch, count = (288, 224, 64, 20, 64, 4096) if cuda else (20, 16, 4, 3, 4, 16)
    torch.manual_seed(16)
    slides = np.random.default_rng(16).integers(0, 256, (64, side, side, 3), dtype=np.uint8)
    workers = (12 if cuda else 1) if repaired else 0
    loader = DataLoader(
        Slides(slides, count, cut, kinds),
        batch_size=batch,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=cuda,
    )
    net = Kinds(width, kinds).to(device)
    return net, torch.optim.SGD(net.parameters(), lr=1e-3), loader, device


def run(state, steps, repaired):
    net, optimizer, loader, device = state
    total, done = torch.zeros((), device=device), 0
    for slides, kinds in loader:
        loss = F.cross_entropy(net(slides.to(device, non_blocking=True)), kinds.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        done += 1
        if done == steps:
            break
    return total / done


main(prepare, run, steps=24)
