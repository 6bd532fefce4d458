"""Tells how likely floods are in each basin of a net of rivers, from basins that flow into each other (GCN)."""

import torch
from common import main
from torch import nn


class Flow(nn.Module):
    """Mixes what lies beside each other, with shares by how many neighbours both have; these may be kept."""

    def __init__(self, inner, outer, cached):
        super().__init__()
        self.weight = nn.Linear(inner, outer)
        self.cached, self.found = cached, None

    def shares(self, links, count):
        loops = torch.arange(count, device=links.device).expand(2, -1)
        links = torch.cat([links, loops], dim=1)
        source, target = links
        many = torch.zeros(count, device=links.device)
        many.index_add_(0, target, torch.ones(len(target), device=links.device))
        root = many.rsqrt()
        return source, target, root[source] * root[target]

    def forward(self, x, links):
        if not self.cached or self.found is None:
            self.found = self.shares(links, len(x))
        source, target, share = self.found
        x = self.weight(x)
        return torch.zeros_like(x).index_add_(0, target, x[source] * share[:, None])


class Floods(nn.Module):
    def __init__(self, features, width, depth, cached):
        super().__init__()
        sizes = [features, *[width] * depth]
        self.layers = nn.ModuleList(
            Flow(a, b, cached) for a, b in zip(sizes, sizes[1:], strict=False)
        )
        self.last = nn.Linear(width, 1)

    def forward(self, x, links):
        for layer in self.layers:
            x = torch.relu(layer(x, links))
        return self.last(x)


def prepare(device, repaired):
    count, many, features, width, depth = (
        (400_000, 5_000_000, 12, 8, 4) if device == "cuda" else (9, 20, 3, 4, 2)
    )
    model = Floods(features, width, depth, cached=repaired).to(device).eval()
    links = torch.randint(count, (2, many), device=device)
    return model, links, torch.randn(4, count, features, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, links, basins = state
    total = torch.zeros((), device=links.device)
    for step in range(steps):
        total += torch.sigmoid(model(basins[step % 4], links)).mean()
    return total / steps


main(prepare, run, steps=250)
