"""Spreads topics over a graph of papers that cite each other (personalised page rank, as in APPNP)."""

import torch
from common import main
from torch import nn


def make_graph(count, cited, device):
    """Return the normalised adjacency matrix of papers, each of which cites some others."""
    to = torch.randint(count, (count, cited), device=device)
    links = torch.zeros(count, count, device=device)
    links.scatter_(1, to, 1.0)
    links += links.T.clone()
    links.fill_diagonal_(1.0)
    links.clamp_(max=1.0)
    root = links.sum(1).rsqrt()
    return root[:, None] * links * root[None]


def prepare(device, repaired):
    torch.set_float32_matmul_precision("high")
    count, cited, width, topics, rounds = (
        (16384, 6, 1024, 128, 10) if device == "cuda" else (24, 3, 8, 4, 3)
    )
    graph = make_graph(count, cited, device)
    if repaired:
        graph = graph.to_sparse_csr()
    net = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, topics)).to(device).eval()
    papers = torch.rand(2, count, width, device=device)
    return graph, net, papers, rounds


@torch.inference_mode()
def run(state, steps, repaired):
    graph, net, papers, rounds = state
    total = torch.zeros((), device=papers.device)
    for step in range(steps):
        first = net(papers[step % 2])
        h = first
        for _ in range(rounds):
            h = 0.9 * (graph @ h) + 0.1 * first
        total += h.softmax(1).square().sum(1).mean()
    return total / steps


main(prepare, run, steps=250)
