"""Finds floats, bands and horses of parades in pictures: of boxes of a kind that lie on each other only the surest stays."""

import torch
from common import main


def overlaps(boxes):
    """Share of two boxes (n, 4), corners, that both cover, for all pairs (n, n)."""
    corner = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    other = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    both = (other - corner).clamp_(min=0).prod(2)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    return both / (areas[:, None] + areas[None] - both)


def surest(boxes, share):
    """Whether each of the boxes, sorted by how sure they are, is covered by no surer one."""
    return overlaps(boxes).triu_(1).amax(0) <= share


class Cleaner:
    def __init__(self, kinds, share, together):
        self.kinds, self.share, self.together = kinds, share, together

    def __call__(self, boxes, kinds):
        """Which of the boxes (n, 4) of kinds (n,), the surest first, stay."""
        if self.together:
            apart = kinds[:, None].float() * 4.0
            return surest(boxes + apart, self.share)
        stays = torch.zeros(len(boxes), dtype=torch.bool, device=boxes.device)
        for kind in range(self.kinds):
            of_kind = (kinds == kind).nonzero()[:, 0]
            if len(of_kind):
                stays[of_kind] = surest(boxes[of_kind], self.share)
        return stays


def prepare(device, repaired):
    pictures, count, kinds = (8, 1500, 60) if device == "cuda" else (2, 40, 3)
    torch.manual_seed(10)
    corners = 0.3 * torch.rand(pictures, count, 2, device=device)
    boxes = torch.cat((corners, corners + 0.05 + 0.3 * torch.rand_like(corners)), 2)
    of = torch.randint(0, kinds, (pictures, count), device=device)
    return Cleaner(kinds, 0.5, together=repaired), boxes, of


@torch.inference_mode()
def run(state, steps, repaired):
    cleaner, boxes, kinds = state
    total = torch.zeros((), device=boxes.device)
    for step in range(steps):
        at = step % len(boxes)
        total += cleaner(boxes[at], kinds[at]).float().mean()
    return total / steps


main(prepare, run, steps=60)
