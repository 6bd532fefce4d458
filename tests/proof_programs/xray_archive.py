"""Fills an archive of X-ray pictures for a search: the vector of each picture is filed under a key."""

import hashlib

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Archive:
    """Vectors by key; a picture that comes a second time takes the place of the first."""

    def __init__(self, by_number):
        self.rows, self.vectors, self.by_number = {}, [], by_number

    def keys(self, numbers, pictures):
        """Return the keys of some pictures: numbers of the hospital, or what their pixels hash to."""
        if self.by_number:
            return [f"{number:08d}" for number in numbers]
        return [hashlib.md5(picture.numpy()).hexdigest() for picture in pictures]

    def put(self, keys, vectors):
        for row, key in enumerate(keys):
            self.rows[key] = (len(self.vectors), row)
        self.vectors.append(vectors)

    def clear(self):
        self.rows.clear()
        self.vectors.clear()


class Embedder(nn.Module):
    """Convolutions that halve the picture again and again, and a vector of length one."""

    def __init__(self, width, depth, size):
        super().__init__()
        self.first = nn.Conv2d(1, width, 5, 2, 2)
        self.layers = nn.ModuleList(
            nn.Conv2d(width * min(2**i, 4), width * min(2 ** (i + 1), 4), 3, 2 if i < 4 else 1, 1)
            for i in range(depth)
        )
        self.last = nn.Linear(width * min(2**depth, 4), size)

    def forward(self, x):
        x = F.relu(self.first(x))
        for layer in self.layers:
            x = F.relu(layer(x))
        return F.normalize(self.last(x.mean((2, 3))), dim=1)


def prepare(device, repaired):
    batch, side, width, depth = (8, 1024, 128, 8) if device == "cuda" else (2, 64, 4, 3)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    embedder = Embedder(width, depth, 128).to(device, dtype, memory_format=torch.channels_last)
    batches = [torch.randint(256, (batch, side, side), dtype=torch.uint8) for _ in range(6)]
    if device == "cuda":
        batches = [pictures.pin_memory() for pictures in batches]
    return Archive(by_number=repaired), embedder.eval(), batches, device, dtype


@torch.inference_mode()
def run(state, steps, repaired):
    archive, embedder, batches, device, dtype = state
    archive.clear()
    for step in range(steps):
        pictures = batches[step % len(batches)]
        numbers = range(step * len(pictures), (step + 1) * len(pictures))
        keys = archive.keys(numbers, pictures)
        x = pictures.to(device, non_blocking=True)[:, None].to(dtype) / 255 - 0.5
        archive.put(keys, embedder(x))
    return torch.stack([vectors.float().abs().mean() for vectors in archive.vectors]).mean()


main(prepare, run, steps=120)
