"""Detects objects: a head rates anchors of each picture, and of boxes that overlap the best one stays."""

import torch
from common import main
from torch import nn

OVERLAP = 0.5


def iou(a, b):
    """Return the overlap of each box of `a` with each of `b`."""
    low = torch.maximum(a[:, None, :2], b[None, :, :2])
    high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    sizes = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (a, b)]
    return both / (sizes[0][:, None] + sizes[1][None, :] - both)


def greedy(boxes, scores):
    """Return the sum of the scores of the boxes that stay; boxes come best first."""
    order = torch.arange(len(boxes), device=boxes.device)
    total = 0
    while len(order):
        best, rest = order[0], order[1:]
        total = total + scores[best]
        order = rest[iou(boxes[best][None], boxes[rest])[0] <= OVERLAP]
    return total


def settled(boxes, scores):
    """Return the same: whether a box stays is settled for all at once, again until nothing changes."""
    hides = (iou(boxes, boxes) > OVERLAP).float().triu(1)
    stays = torch.ones_like(scores)
    for _ in range(32):
        stays = (stays @ hides == 0).float()
    return (scores * stays).sum()


class Head(nn.Module):
    """Rates anchors on a grid and moves their corners."""

    def __init__(self, width, anchors):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, width, 7, 4, 3), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(width, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(),
        )  # fmt: skip
        self.out = nn.Conv2d(width, anchors * 5, 1)

    def forward(self, x):
        out = self.out(self.trunk(x))
        return out.unflatten(1, (-1, 5)).permute(0, 1, 3, 4, 2)


def prepare(device, repaired):
    size, width, anchors, best = (640, 256, 3, 600) if device == "cuda" else (64, 8, 2, 20)
    head = Head(width, anchors).to(device).eval()
    pictures = torch.randn(1, 3, size, size, device=device)
    line = torch.arange(size // 16, device=device) * 16.0 + 8
    y, x = torch.meshgrid(line, line, indexing="ij")
    centres = torch.stack([x, y], -1)
    sizes = torch.tensor([[40.0, 40.0], [70.0, 50.0], [50.0, 90.0]], device=device)[:anchors]
    return head, pictures, centres, sizes, best


@torch.inference_mode()
def run(state, steps, repaired):
    head, pictures, centres, sizes, best = state
    total = 0
    for _ in range(steps):
        for found in head(pictures):
            middle = centres + 6 * found[..., 1:3]
            half = sizes[:, None, None] * torch.exp(0.2 * found[..., 3:5]) / 2
            boxes = torch.cat([middle - half, middle + half], -1).flatten(0, 2)
            scores, at = found[..., 0].flatten().sigmoid().topk(best)
            total = total + (settled if repaired else greedy)(boxes[at], scores)
    return total / steps


main(prepare, run, steps=2, warm=1)
