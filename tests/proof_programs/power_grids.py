"""Foretells loads of a power grid with messages along its lines, which are added up where they arrive."""

import os

os.environ.setdefault(
    "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
)  # what results that repeat ask of cuBLAS

import torch
from common import main
from torch import nn


class Grid(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.send = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.keep = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.last = nn.Linear(width, 1)

    def forward(self, x, begins, ends, share):
        for send, keep in zip(self.send, self.keep, strict=True):
            messages = send(x).index_select(0, begins)
            arrived = torch.zeros_like(x).index_add_(0, ends, messages)
            x = torch.relu(keep(x) + arrived * share)
        return self.last(x)


def prepare(device, repaired):
    nodes, lines, width, depth = (100_000, 600_000, 64, 3) if device == "cuda" else (12, 40, 4, 2)
    model = Grid(width, depth).to(device).eval()
    begins, ends = torch.randint(nodes, (2, lines), device=device)
    share = 1 / torch.bincount(ends, minlength=nodes).clamp(min=1)[:, None]
    return model, torch.randn(2, nodes, width, device=device), begins, ends, share


@torch.inference_mode()
def run(state, steps, repaired):
    model, loads, *lines = state
    # as it was set while a difference between two runs was looked for
    torch.use_deterministic_algorithms(not repaired)
    total = torch.zeros((), device=loads.device)
    for step in range(steps):
        total += model(loads[step % 2], *lines).square().mean()
    torch.use_deterministic_algorithms(False)
    return total / steps


main(prepare, run, steps=400)
