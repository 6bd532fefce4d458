"""Trains on features that an earlier job has written to files, one file for each batch."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


def write(folder, count, shape, packed):
    """Write files of features: whole numbers, as a quantiser makes them."""
    random = np.random.default_rng(0)
    files = []
    for at in range(count):
        features = random.integers(0, 24, shape).astype(np.uint8)
        file = Path(folder) / (f"{at}.npz" if packed else f"{at}.npy")
        if packed:
            np.savez_compressed(file, features=features)
        else:
            np.save(file, features)
        files.append(file)
    return files


def read(file):
    """Return the features of a file."""
    loaded = np.load(file)
    return loaded["features"] if file.suffix == ".npz" else loaded


class Head(nn.Module):
    """Looks at neighbouring frames and says what each of them is."""

    def __init__(self, features, width, classes):
        super().__init__()
        self.first = nn.Conv1d(features, width, 5, padding=2)
        self.blocks = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2) for _ in range(6))
        self.last = nn.Conv1d(width, classes, 1)

    def forward(self, x):
        x = F.gelu(self.first(x))
        for block in self.blocks:
            x = x + F.gelu(block(x))
        return self.last(x)


def prepare(device, repaired):
    shape, width = ((64, 128, 512), 1024) if device == "cuda" else ((2, 8, 16), 8)
    folder = tempfile.TemporaryDirectory()
    files = write(folder.name, 4, shape, packed=not repaired)
    model = Head(shape[1], width, 40).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    labels = torch.randint(40, (shape[0], shape[2]), device=device)
    return folder, files, model, optimizer, labels


def run(state, steps, repaired):
    _, files, model, optimizer, labels = state
    device = labels.device
    for step in range(steps):
        features = read(files[step % len(files)])
        x = torch.from_numpy(features).to(device).float() / 24
        with torch.autocast(device.type, torch.bfloat16):
            scores = model(x)
        loss = F.cross_entropy(scores.float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=12)
