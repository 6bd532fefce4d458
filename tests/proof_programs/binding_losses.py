"""Trains a network that tells a dozen properties of how a drug binds; the loss of each property is followed by a meter."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

PROPERTIES = (
    "affinity", "pose", "entropy", "contacts", "charge", "clash", "water", "strain", "exit", "rank",
)  # fmt: skip


class Meter:
    """The mean of what it has been told."""

    def __init__(self, device):
        self.sum, self.count = torch.zeros((), device=device), 0

    def update(self, value):
        self.sum += value
        self.count += 1

    def mean(self):
        return float(self.sum) / max(self.count, 1)


class Head(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(
            nn.Linear(width, inner),
            nn.SiLU(),
            nn.Linear(inner, inner),
            nn.SiLU(),
            nn.Linear(inner, 1),
        )

    def forward(self, x):
        return self.layers(self.norm(x))[:, 0]


class Binding(nn.Module):
    """A deep trunk over pairs of atoms, and a small head for each property of the molecule."""

    def __init__(self, width, depth, inner):
        super().__init__()
        self.trunk = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.heads = nn.ModuleDict({name: Head(width, inner) for name in PROPERTIES})

    def forward(self, pairs):
        for layer in self.trunk:
            pairs = F.silu(layer(pairs))
        molecules = pairs.unflatten(0, (-1, 32)).mean(1)
        return {name: head(molecules) for name, head in self.heads.items()}


def follow(meters, losses, on_gpu):
    """Tell each meter its loss of this step."""
    for name, loss in losses.items():
        value = loss.detach() if on_gpu else loss.item()
        meters[name].update(value)


def prepare(device, repaired):
    rows, width, depth, inner = (8192, 2048, 4, 128) if device == "cuda" else (64, 32, 2, 8)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = Binding(width, depth, inner).to(device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=device == "cuda")
    pairs = torch.randn(4, rows, width, device=device).to(dtype)
    truth = {name: torch.rand(rows // 32, device=device).to(dtype) for name in PROPERTIES}
    return model, optimizer, pairs, truth


def run(state, steps, repaired):
    model, optimizer, pairs, truth = state
    meters = {name: Meter(pairs.device) for name in PROPERTIES}
    for step in range(steps):
        said = model(pairs[step % 4])
        losses = {name: F.mse_loss(said[name].float(), truth[name].float()) for name in PROPERTIES}
        follow(meters, losses, on_gpu=repaired)
        sum(losses.values()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return sum(meter.mean() for meter in meters.values())


main(prepare, run, steps=450)
