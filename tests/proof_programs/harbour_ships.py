"""Guesses from ships that met in harbours which of them carry what, with a network over the graph of meetings."""

import torch
from common import main
from torch import nn


class Meetings:
    """Adds up what neighbours hold: a vector for each meeting, or as a product with a sparse matrix."""

    def __init__(self, source, target, shares, count, sparse):
        self.source, self.target, self.shares = source, target, shares
        self.matrix = None
        if sparse:
            places = torch.stack([target, source])
            self.matrix = torch.sparse_coo_tensor(places, shares, (count, count)).to_sparse_csr()

    def __call__(self, x):
        if self.matrix is not None:
            return self.matrix @ x
        held = x[self.source] * self.shares[:, None]
        return torch.zeros_like(x).index_add_(0, self.target, held)


class Ships(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.near = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.last = nn.Linear(width, 10)

    def forward(self, x, meetings):
        for own, near in zip(self.own, self.near, strict=True):
            x = torch.relu(own(x) + near(meetings(x)))
        return self.last(x)


def prepare(device, repaired):
    count, many, width, depth = (200_000, 4_000_000, 64, 3) if device == "cuda" else (9, 30, 4, 2)
    source = torch.randint(count, (many,), device=device)
    target = torch.randint(count, (many,), device=device).sort().values
    degree = torch.bincount(target, minlength=count).clamp(min=1)
    meetings = Meetings(source, target, 1 / degree[target].float(), count, sparse=repaired)
    return (
        Ships(width, depth).to(device).eval(),
        meetings,
        torch.randn(2, count, width, device=device),
    )


@torch.inference_mode()
def run(state, steps, repaired):
    model, meetings, ships = state
    total = torch.zeros((), device=ships.device)
    for step in range(steps):
        total += model(ships[step % 2], meetings).square().mean()
    return total / steps


main(prepare, run, steps=200)
