"""Trains a finder of litter on photographs of beaches, of which each step sees another part, mirrored or not."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def net(width, kinds):
    return nn.Sequential(
        nn.Conv2d(3, width, 8, stride=8),
        nn.GELU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.GELU(),
        nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, kinds),
    )


def crop(photos, tops, lefts, mirrored, size):
    """Return a square part of each photo, (photos, 3, size, size)."""
    parts = []
    for photo, top, left, mirror in zip(
        photos, tops.tolist(), lefts.tolist(), mirrored.tolist(), strict=True
    ):
        part = photo[:, top : top + size, left : left + size]
        parts.append(part.flip(2) if mirror else part)
    return torch.stack(parts)


def crop_batch(photos, tops, lefts, mirrored, size):
    """Return a square part of each photo, (photos, 3, size, size)."""
    device = photos.device
    tops, lefts, mirrored = torch.stack([tops, lefts, mirrored]).to(device)
    along = torch.arange(size, device=device)
    rows = tops[:, None] + along
    columns = lefts[:, None] + torch.where(mirrored[:, None] > 0, size - 1 - along, along)
    which = torch.arange(len(photos), device=device)[:, None, None, None]
    channels = torch.arange(photos.shape[1], device=device)[:, None, None]
    return photos[which, channels, rows[:, None, :, None], columns[:, None, None, :]]


def prepare(device, repaired):
    cuda = device == "cuda"
    batch, side, size, width = (384, 192, 160, 48) if cuda else (4, 20, 16, 4)
    torch.set_float32_matmul_precision("high")
    model = net(width, kinds=12).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    photos = torch.randint(256, (batch, 3, side, side), device=device, dtype=torch.uint8)
    kinds = torch.randint(12, (batch,), device=device)
    return model, optimizer, photos, kinds, size


def run(state, steps, repaired):
    model, optimizer, photos, kinds, size = state
    total = torch.zeros((), device=photos.device)
    draw = torch.Generator().manual_seed(steps)
    room = photos.shape[-1] - size
    for _ in range(steps):
        tops, lefts = torch.randint(room, (2, len(photos)), generator=draw)
        mirrored = torch.randint(2, (len(photos),), generator=draw)
        parts = (crop_batch if repaired else crop)(photos, tops, lefts, mirrored, size)
        scores = model(parts.float() / 255)
        loss = F.cross_entropy(scores, kinds)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=120)
