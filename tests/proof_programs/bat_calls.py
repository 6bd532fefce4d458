"""Tells bats apart by spectra of their calls, which lie on the disk."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from common import main
from torch import nn


class Files:
    """Each call is a file of its own, as the recorder wrote it."""

    def __init__(self, folder, calls):
        self.folder = folder
        for number, call in enumerate(calls):
            np.save(self.path(number), call)

    def path(self, number):
        return self.folder / f"call-{number:06}.npy"

    def batch(self, numbers):
        calls = [np.load(self.path(number)) for number in numbers]
        return np.stack(calls)


class Packed:
    """All calls lie in one file, which is mapped."""

    def __init__(self, folder, calls):
        np.save(folder / "calls.npy", calls)
        self.calls = np.load(folder / "calls.npy", mmap_mode="r")

    def batch(self, numbers):
        return self.calls[numbers]


class Ears(nn.Module):
    def __init__(self, width, kinds):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 5, padding=2), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.last = nn.Linear(width, kinds)

    def forward(self, calls):
        return self.last(self.layers(calls[:, None]).mean((2, 3)))


def prepare(device, repaired):
    count, shape, width = (2048, (64, 48), 256) if device == "cuda" else (10, (8, 8), 4)
    folder = tempfile.TemporaryDirectory()
    calls = np.random.default_rng(7).random((count, *shape), np.float32)
    store = (Packed if repaired else Files)(Path(folder.name), calls)
    return Ears(width, 18).to(device).eval(), store, count, folder, device


@torch.inference_mode()
def run(state, steps, repaired):
    model, store, count, _, device = state
    random = np.random.default_rng(8)
    total = torch.zeros((), device=device)
    for _ in range(steps):
        numbers = random.integers(0, count, min(256, count))
        calls = torch.from_numpy(store.batch(numbers))
        total += model(calls.to(device)).square().mean()
    return total / steps


main(prepare, run, steps=50)
