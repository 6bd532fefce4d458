"""Learns what ports will ship: a graph of routes, each of one of some kinds, along which ports hear of each other."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Routes(nn.Module):
    """What ports hear along routes: of the port at the other end, and of the kind of the route."""

    def __init__(self, width, kinds, selected):
        super().__init__()
        self.selected = selected
        self.kinds = nn.Parameter(torch.randn(kinds, width))
        self.hear, self.keep = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, starts, ends, kinds):
        if self.selected:
            kind = self.kinds.index_select(0, kinds)
        else:
            kind = self.kinds[kinds]
        heard = F.relu(self.hear(x).index_select(0, starts) + kind)
        return self.keep(x) + torch.zeros_like(x).index_add(0, ends, heard)


class Ports(nn.Module):
    def __init__(self, known, width, kinds, depth, selected):
        super().__init__()
        self.enter, self.last = nn.Linear(known, width), nn.Linear(width, 1)
        self.layers = nn.ModuleList(Routes(width, kinds, selected) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def forward(self, x, *routes):
        x = self.enter(x)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(F.relu(layer(x, *routes)))
        return self.last(x)[:, 0]


def prepare(device, repaired):
    cuda = device == "cuda"
    ports, routes, known, width, kinds, depth = (
        (20000, 400000, 32, 64, 20, 3) if cuda else (10, 40, 4, 8, 3, 2)
    )
    torch.manual_seed(15)
    model = Ports(known, width, kinds, depth, selected=repaired).to(device)
    x, shipped = torch.randn(ports, known, device=device), torch.rand(ports, device=device)
    ends = [torch.randint(0, ports, (routes,), device=device) for _ in range(2)]
    which = torch.randint(0, kinds, (routes,), device=device)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), (x, *ends, which), shipped


def run(state, steps, repaired):
    model, optimizer, graph, shipped = state
    total = torch.zeros((), device=shipped.device)
    for _ in range(steps):
        loss = F.mse_loss(model(*graph), shipped)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=60)
