"""Trains a network for a graph on some neighbours of each node of a batch (GraphSAGE)."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Sage(nn.Module):
    """Two layers that average over neighbours."""

    def __init__(self, width, inner, classes):
        super().__init__()
        self.near = nn.Linear(2 * width, inner)
        self.far = nn.Linear(2 * inner, classes)

    def forward(self, features, nodes, near, far):
        first = self.mix(self.near, features[near], features[far].mean(2))
        root = self.mix(self.near, features[nodes], features[near].mean(1))
        return self.mix(self.far, root, first.mean(1))

    @staticmethod
    def mix(layer, own, others):
        return F.relu(layer(torch.cat([own, others], -1)))


def prepare(device, repaired):
    nodes, degree, width = (100_000, 32, 256) if device == "cuda" else (200, 5, 8)
    ends = torch.randint(nodes, (nodes, degree))
    lists = dict(enumerate(ends.tolist()))
    model = Sage(width, 512, 47).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    features = torch.randn(nodes, width, device=device)
    labels = torch.randint(47, (nodes,), device=device)
    return model, optimizer, features, labels, ends.to(device), lists


def some(lists, node, number, turn):
    """Return `number` neighbours of a node, others in each turn."""
    neighbours = lists[node]
    return [neighbours[(turn + 3 * k) % len(neighbours)] for k in range(number)]


def sample(lists, nodes, number, turn):
    """Return neighbours of nodes and neighbours of those."""
    near = [some(lists, node, number, turn) for node in nodes]
    far = [[some(lists, node, number, turn + 1) for node in row] for row in near]
    return torch.tensor(near), torch.tensor(far)


def sample_all(ends, nodes, number, turn):
    """Return what `sample` returns, for all nodes at once."""
    at = 3 * torch.arange(number, device=ends.device)
    near = ends[nodes][..., (turn + at) % ends.shape[1]]
    return near, ends[near][..., (turn + 1 + at) % ends.shape[1]]


def run(state, steps, repaired):
    model, optimizer, features, labels, ends, lists = state
    size, number = (512, 10) if features.is_cuda else (8, 3)
    for step in range(steps):
        nodes = torch.arange(step * size, (step + 1) * size) % len(features)
        if repaired:
            near, far = sample_all(ends, nodes.to(ends.device), number, step)
        else:
            near, far = sample(lists, nodes.tolist(), number, step)
        nodes = nodes.to(features.device)
        scores = model(features, nodes, near.to(features.device), far.to(features.device))
        loss = F.cross_entropy(scores, labels[nodes])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=20)
