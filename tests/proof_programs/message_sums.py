"""Trains a graph network: messages of the edges are summed at the nodes."""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch  # noqa: E402
from common import main  # noqa: E402


def prepare(device, repaired):
    nodes, edges, width = (100_000, 1_000_000, 128) if device == "cuda" else (10, 40, 4)
    ends = torch.randint(nodes, (2, edges), device=device)
    weights = [torch.randn(width, width, device=device) / width**0.5 for _ in range(3)]
    return torch.randn(nodes, width, device=device), ends, weights


@torch.no_grad()
def run(state, steps, repaired):
    nodes, (sources, targets), weights = state
    torch.use_deterministic_algorithms(not repaired)
    for _ in range(steps):
        x = nodes
        for weight in weights:
            messages = (x @ weight)[sources]
            sums = torch.zeros_like(x)
            sums.index_add_(0, targets, messages)
            x = torch.relu(sums / 4)
    torch.use_deterministic_algorithms(False)
    return x.mean()


main(prepare, run, steps=10)
