"""Predicts a property of proteins from their graphs; the nodes of all graphs of a batch lie in one tensor."""

import torch
from common import main
from torch import nn


class Net(nn.Module):
    """Mixes each node with its neighbours along the chain, then takes the mean of a graph."""

    def __init__(self, features, width, depth):
        super().__init__()
        self.inward = nn.Linear(features, width)
        self.mixers = nn.ModuleList(nn.Linear(3 * width, width) for _ in range(depth))
        self.out = nn.Linear(width, 1)

    def forward(self, x, graph, starts):
        h = torch.relu(self.inward(x))
        for mixer in self.mixers:
            h = h + torch.relu(mixer(torch.cat([h, h.roll(1, 0), h.roll(-1, 0)], -1)))
        return self.out(mean_by_graph(h, graph) if starts is None else by_starts(h, starts))


def mean_by_graph(h, graph):
    pooled = []
    for number in range(int(graph.max()) + 1):
        pooled.append(h[graph == number].mean(0))
    return torch.stack(pooled)


def by_starts(h, starts):
    return torch.segment_reduce(h, "mean", offsets=starts, axis=0)


def prepare(device, repaired):
    graphs, nodes, width, depth = (384, 300, 96, 4) if device == "cuda" else (3, 5, 8, 1)
    sizes = torch.randint(nodes // 2, nodes * 3 // 2, (graphs,))
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)]).to(device)
    graph = torch.arange(graphs).repeat_interleave(sizes).to(device)
    torch.backends.cuda.matmul.allow_tf32 = True
    net = Net(20, width, depth).to(device).eval()
    return net, torch.randn(len(graph), 20, device=device), graph, starts


@torch.inference_mode()
def run(state, steps, repaired):
    net, x, graph, starts = state
    total = 0
    for _ in range(steps):
        total = total + net(x, graph, starts if repaired else None).square().mean()
    return total / steps


main(prepare, run, steps=10)
