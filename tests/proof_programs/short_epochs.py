"""Trains on a small set of pictures for some epochs, with a loader that has workers."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count, size):
        self.count, self.size = count, size
        self.base = torch.rand(3, size, size)

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        return self.base.roll(at, 2), at % 10


def prepare(device, repaired):
    count, size, width = (512, 96, 256) if device == "cuda" else (8, 8, 4)
    loader = DataLoader(
        Pictures(count, size),
        batch_size=64 if device == "cuda" else 4,
        num_workers=4 if device == "cuda" else 1,
        pin_memory=device == "cuda",
        persistent_workers=repaired,
    )
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.ReLU(),
        *(part for _ in range(3) for part in (nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.ReLU())),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10),
    )  # fmt: skip
    model = model.to(device, memory_format=torch.channels_last)
    return loader, model, torch.optim.SGD(model.parameters(), lr=0.01, fused=True), device


def run(state, steps, repaired):
    loader, model, optimizer, device = state
    for _ in range(steps):
        for pictures, labels in loader:
            x = pictures.to(device, non_blocking=True)
            y = labels.to(device, non_blocking=True)
            with torch.autocast(device, torch.bfloat16):
                guess = model(x.to(memory_format=torch.channels_last))
            loss = F.cross_entropy(guess.float(), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=4, small=1, warm=1)
