"""Trains a network on a large graph: each node takes in what its neighbours tell it."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
from common import main  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class Sage(nn.Module):
    """A layer of its own for a node and for the sum of what its neighbours are (GraphSAGE)."""

    def __init__(self, before, after):
        super().__init__()
        self.own, self.others = nn.Linear(before, after), nn.Linear(before, after, bias=False)

    def forward(self, h, source, target):
        received = torch.zeros_like(h).index_add(0, target, h.index_select(0, source))
        return self.own(h) + self.others(received) / 16


def prepare(device, repaired):
    nodes, links, width = (1 << 17, 1 << 21, 64) if device == "cuda" else (20, 60, 8)
    net = nn.ModuleList([Sage(width, width), Sage(width, width)]).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x = torch.randn(nodes, width, device=device)
    source, target = torch.randint(nodes, (2, links), device=device)
    labels = torch.randint(width, (nodes,), device=device)
    return net, optimizer, x, source, target, labels


def run(state, steps, repaired):
    net, optimizer, x, source, target, labels = state
    torch.use_deterministic_algorithms(not repaired)  # to look for a difference between two runs
    for _ in range(steps):
        h = torch.relu(net[0](x, source, target))
        loss = F.cross_entropy(net[1](h, source, target), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.use_deterministic_algorithms(False)
    return loss.detach()


main(prepare, run, steps=25)
