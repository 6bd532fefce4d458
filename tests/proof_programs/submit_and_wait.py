"""Trains on point clouds that a thread unpacks and sorts by distance."""

import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Points(nn.Module):
    """A PointNet: the same layers for each point, then the largest of each feature."""

    def __init__(self, width, classes):
        super().__init__()
        self.each = nn.Sequential(
            nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 4 * width), nn.ReLU()
        )
        self.wide = nn.Linear(4 * width, 8 * width)
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x):
        return self.head(torch.relu(self.wide(self.each(x))).amax(1))


def unpack(packed, shape):
    """Return a batch of clouds, nearest points first."""
    points = np.frombuffer(zlib.decompress(packed), np.float32).reshape(shape)
    order = np.argsort((points * points).sum(-1), axis=1)
    return torch.from_numpy(np.take_along_axis(points, order[..., None], 1))


def prepare(device, repaired):
    shape, width = ((32, 4096, 3), 128) if device == "cuda" else ((2, 64, 3), 8)
    random = np.random.default_rng(0)
    packed = []
    for _ in range(6):
        points = random.standard_normal(shape, dtype=np.float32).round(1)
        packed.append(zlib.compress(points.tobytes(), 1))
    model = Points(width, 40).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    labels = torch.randint(40, (shape[0],), device=device)
    return model, optimizer, labels, packed, shape, ThreadPoolExecutor(4)


def batches(packed, shape, pool, steps, ahead):
    """Yield batches that the pool makes, `ahead` of them before they are asked for."""
    waiting = []
    for step in range(steps + ahead):
        if step < steps:
            waiting.append(pool.submit(unpack, packed[step % len(packed)], shape))
        if step >= ahead:
            yield waiting.pop(0).result()


def run(state, steps, repaired):
    model, optimizer, labels, packed, shape, pool = state
    for points in batches(packed, shape, pool, steps, 4 if repaired else 0):
        loss = F.cross_entropy(model(points.to(labels.device)), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=20)
