"""Trains a recommender on a graph of users and items: vectors of neighbours are summed and compared."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
from common import main  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

torch.set_float32_matmul_precision("high")


class Graph(nn.Module):
    """Each round a node takes the mean of its neighbours' vectors."""

    def __init__(self, nodes, width, rounds):
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(nodes, width) * 0.1)
        self.mixes = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))

    def forward(self, source, goal, degree):
        x = self.vectors
        for mix in self.mixes:
            message = mix(x).index_select(0, source)
            total = torch.zeros_like(x).index_add(0, goal, message)
            x = x + torch.tanh(total / degree)
        return x


def prepare(device, repaired):
    nodes, edges, width, rounds = (
        (100_000, 1_000_000, 64, 2) if device == "cuda" else (20, 60, 4, 2)
    )
    source = torch.randint(nodes, (edges,), device=device)
    goal = torch.randint(nodes, (edges,), device=device)
    degree = torch.bincount(goal, minlength=nodes).clamp(min=1)[:, None].float()
    model = Graph(nodes, width, rounds).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    pairs = torch.randint(nodes, (2, 65_536 if device == "cuda" else 8), device=device)
    return model, optimizer, (source, goal, degree), pairs


def loss_of(vectors, pairs):
    """Let users and the items that they liked be closer than users and others."""
    users, items = vectors.index_select(0, pairs[0]), vectors.index_select(0, pairs[1])
    liked = (users * items).sum(1)
    others = (users * items.roll(1, 0)).sum(1)
    return F.softplus(others - liked).mean()


def run(state, steps, repaired):
    model, optimizer, graph, pairs = state
    torch.use_deterministic_algorithms(not repaired)
    for _ in range(steps):
        loss = loss_of(model(*graph), pairs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=20)
