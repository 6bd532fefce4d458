"""Ranks products for visitors: what they looked at, in which shop and when, becomes a vector each."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

SIZES = {"product": 40_000, "shop": 2_000, "hour": 168}


class Table(nn.Module):
    """A vector for each of `rows` values."""

    def __init__(self, rows, width, lookup):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, width) * 0.05)
        self.lookup = lookup

    def forward(self, ids):
        if self.lookup:
            return F.embedding(ids, self.weight)
        chosen = F.one_hot(ids, len(self.weight)).to(self.weight.dtype)
        return chosen @ self.weight


class Ranker(nn.Module):
    """Vectors of all features, side by side, through a network."""

    def __init__(self, sizes, width, lookup):
        super().__init__()
        self.tables = nn.ModuleList(Table(rows, width, lookup) for rows in sizes)
        inner = 16 * width
        self.net = nn.Sequential(
            nn.Linear(len(sizes) * width, inner), nn.GELU(),
            nn.Linear(inner, inner), nn.GELU(),
            nn.Linear(inner, 1),
        )  # fmt: skip

    def forward(self, ids):
        seen = [table(column) for table, column in zip(self.tables, ids, strict=True)]
        return self.net(torch.cat(seen, 1))[:, 0]


def prepare(device, repaired):
    small = device != "cuda"
    sizes = [20 if small else rows for rows in SIZES.values()]
    batch, width = (8, 4) if small else (8192, 256)
    dtype = torch.float32 if small else torch.bfloat16
    model = Ranker(sizes, width, repaired).to(device, dtype).eval()
    return model, [torch.randint(rows, (batch,), device=device) for rows in sizes]


@torch.inference_mode()
def run(state, steps, repaired):
    model, ids = state
    best = 0
    for _ in range(steps):
        scores = model(ids)
        best = best + scores.float().topk(8).values.mean()
    return best / steps


main(prepare, run, steps=40)
