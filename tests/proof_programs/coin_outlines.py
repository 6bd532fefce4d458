"""Finds coins on tables and draws their outlines: a network proposes a hundred masks, the best eight are drawn full size."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Proposals(nn.Module):
    """Scores (photos, queries) and masks (photos, queries, side / 4, side / 4) of what may be coins."""

    def __init__(self, width, queries):
        super().__init__()
        self.first = nn.Conv2d(3, width, 7, stride=4, padding=3)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.queries = nn.Parameter(torch.randn(queries, width) / width**0.5)
        self.score = nn.Linear(2 * width, 1)

    def forward(self, photos):
        x = self.first(photos)
        for conv in self.convs:
            x = x + conv(F.relu(x))
        masks = torch.einsum("qw,bwij->bqij", self.queries, x)
        looks = x.mean((2, 3))[:, None].expand(-1, len(self.queries), -1)
        known = torch.cat((looks, self.queries.expand(len(x), -1, -1)), -1)
        return self.score(known)[..., 0], masks


def best_of(values, places):
    return values.gather(1, places[..., None, None].expand(-1, -1, *values.shape[2:]))


def outlines(scores, masks, side, count, best_first):
    """Return masks (photos, count, side, side) of the best scores."""
    places = scores.topk(count, dim=1)[1]
    if best_first:
        masks = best_of(masks, places)
    full = F.interpolate(masks, size=(side, side), mode="bilinear", align_corners=False)
    drawn = full.sigmoid() > 0.5
    return drawn if best_first else best_of(drawn, places)


def prepare(device, repaired):
    cuda = device == "cuda"
    photos, side, width, queries, count = (4, 1024, 32, 100, 8) if cuda else (2, 16, 4, 6, 2)
    torch.manual_seed(18)
    model = Proposals(width, queries).to(device).eval()
    seen = torch.randn(2, photos, 3, side, side, device=device)
    return model, seen, count


@torch.inference_mode()
def run(state, steps, repaired):
    model, seen, count = state
    total = torch.zeros((), device=seen.device)
    for step in range(steps):
        photos = seen[step % 2]
        scores, masks = model(photos)
        drawn = outlines(scores, masks, photos.shape[-1], count, best_first=repaired)
        total += drawn.float().mean()
    return total / steps


main(prepare, run, steps=200)
