"""Second stage of a detector: each region of a map of features is brought to 7 by 7 and rated."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

SIDE = 7


def crop_each(features, boxes):
    """Return the regions of the boxes (x, y, width, height), one after another."""
    crops = [
        F.interpolate(features[:, :, y : y + high, x : x + wide], (SIDE, SIDE), mode="bilinear")
        for x, y, wide, high in boxes
    ]
    return torch.cat(crops)


def crop_all(features, boxes):
    """Return the same from one look-up of all points of all boxes."""
    boxes = torch.tensor(boxes, dtype=torch.float32).to(features.device, non_blocking=True)
    part = (torch.arange(SIDE, device=features.device) + 0.5) / SIDE
    across = boxes[:, 0:1] + part * boxes[:, 2:3]
    along = boxes[:, 1:2] + part * boxes[:, 3:4]
    height, width = features.shape[2:]
    across, along = across * 2 / width - 1, along * 2 / height - 1
    points = torch.stack(
        [across[:, None, :].expand(-1, SIDE, -1), along[:, :, None].expand(-1, -1, SIDE)], -1
    )
    crops = F.grid_sample(features, points.reshape(1, -1, SIDE, 2), align_corners=False)
    return crops[0].unflatten(1, (-1, SIDE)).transpose(0, 1)


def prepare(device, repaired):
    size, width, count = (800, 256, 400) if device == "cuda" else (160, 4, 3)
    trunk = nn.Sequential(
        nn.Conv2d(3, 64 if width > 4 else 4, 7, 4, 3), nn.ReLU(),
        nn.Conv2d(64 if width > 4 else 4, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1),
    )  # fmt: skip
    head = nn.Sequential(
        nn.Flatten(), nn.Linear(width * SIDE * SIDE, 1024 if width > 4 else 8), nn.ReLU(),
        nn.Linear(1024 if width > 4 else 8, 91),
    )  # fmt: skip
    pictures = torch.randn(2, 1, 3, size, size, device=device)
    cells = size // 8
    sizes = torch.randint(SIDE, min(cells // 2, 40), (2, count, 2))
    corners = (torch.rand(2, count, 2) * (cells - sizes)).long()
    boxes = torch.cat([corners, sizes], -1).tolist()
    return trunk.to(device).eval(), head.to(device).eval(), pictures, boxes


@torch.inference_mode()
def run(state, steps, repaired):
    trunk, head, pictures, boxes = state
    crop = crop_all if repaired else crop_each
    total = torch.zeros((), device=pictures.device)
    for step in range(steps):
        regions = crop(trunk(pictures[step % 2]), boxes[step % 2])
        total += head(regions).square().mean()
    return total / steps


main(prepare, run, steps=110)
