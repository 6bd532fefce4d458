"""Trains a network for molecules; sums over bonds are made in a fixed order, to get the same bits."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    """Sends messages along bonds and adds them up at the atoms."""

    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(width, width)
        self.update = nn.Linear(2 * width, width)

    def forward(self, atoms, source, target):
        sent = F.silu(self.message(atoms)).index_select(0, source)
        received = torch.zeros_like(atoms).index_add(0, target, sent)
        return atoms + F.silu(self.update(torch.cat([atoms, received], 1)))


def prepare(device, repaired):
    atoms, bonds, width = (60_000, 240_000, 128) if device == "cuda" else (40, 120, 8)
    kinds = nn.Embedding(100, width).to(device)
    layers = nn.ModuleList(Layer(width) for _ in range(3)).to(device)
    weights = [*kinds.parameters(), *layers.parameters()]
    optimizer = torch.optim.Adam(weights, lr=1e-4)
    kind = torch.randint(100, (atoms,), device=device)
    source, target = torch.randint(atoms, (2, bonds), device=device)
    return kinds, layers, optimizer, kind, source, target


def run(state, steps, repaired):
    kinds, layers, optimizer, kind, source, target = state
    torch.use_deterministic_algorithms(not repaired, warn_only=True)
    for _ in range(steps):
        atoms = kinds(kind)
        for layer in layers:
            atoms = layer(atoms, source, target)
        loss = atoms.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.use_deterministic_algorithms(False)
    return loss.detach()


main(prepare, run, steps=20)
