"""Spreads labels over a graph of pages: scores go along the links several times (APPNP)."""

import torch
from common import main
from torch import nn


def links(nodes, number, device):
    """Return the matrix of links with weights that make means, as its file lists them."""
    ends = torch.randint(nodes, (2, number), device=device)
    degree = torch.bincount(ends[0], minlength=nodes).clamp(min=1)
    weights = 1.0 / degree[ends[0]]
    return torch.sparse_coo_tensor(ends, weights, (nodes, nodes), check_invariants=False)


def prepare(device, repaired):
    nodes, number, width = (100_000, 3_000_000, 256) if device == "cuda" else (50, 300, 8)
    graph = links(nodes, number, device)
    if repaired:
        graph = graph.coalesce()
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 40)).to(device)
    return model, graph, torch.randn(nodes, width, device=device)


@torch.inference_mode()
def spread(graph, scores, rounds, back):
    """Return scores after some rounds along the links, with a part of the first ones each time."""
    first = scores
    for _ in range(rounds):
        scores = (1 - back) * torch.sparse.mm(graph, scores) + back * first
    return scores


@torch.inference_mode()
def run(state, steps, repaired):
    model, graph, features = state
    for _ in range(steps):
        scores = spread(graph, model(features), 10, 0.1)
    return scores.softmax(1).square().sum(1).mean()


main(prepare, run, steps=5)
