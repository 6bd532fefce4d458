"""Trains an image classifier from a DataLoader whose dataset decodes and augments each image with numpy."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count, size):
        self.pixels = np.random.default_rng(0).integers(0, 256, (64, size, size, 3), dtype=np.uint8)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = self.pixels[index % 64].astype(np.float64) / 255
        if index % 2:
            picture = picture[:, ::-1]
        picture = (picture - picture.mean((0, 1))) / (picture.std((0, 1)) + 1e-6)
        return torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1), dtype=np.float32))


def prepare(device, repaired):
    torch.set_num_threads(1)
    size, count = (192, 640) if device == "cuda" else (16, 8)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    workers = 8 if repaired else 0
    loader = DataLoader(
        Pictures(count, size),
        batch_size=32 if device == "cuda" else 2,
        num_workers=workers,
        persistent_workers=repaired,
        pin_memory=device == "cuda",
    )
    model = model.to(device)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), loader, device


def run(state, steps, repaired):
    model, optimizer, loader, device = state
    total = torch.zeros((), device=device)
    for batch in loader:
        loss = model(batch.to(device, non_blocking=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total


main(prepare, run, steps=20, warm=20)
