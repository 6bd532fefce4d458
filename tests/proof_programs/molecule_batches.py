"""Trains a network that tells how well molecules dissolve; those of a batch are brought to one number of atoms."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Batches:
    """Molecules of alike size, batch by batch, with room for as many atoms as the largest of all molecules has, or of the batch."""

    def __init__(self, count, batch, kinds, limit, device):
        self.limit, self.device = limit, device
        random = torch.Generator().manual_seed(2)
        self.batches = []
        for _ in range(count):
            longest = int(torch.randint(limit // 4, limit // 2, (1,), generator=random))
            sizes = torch.randint(longest // 2, longest + 1, (batch,), generator=random)
            atoms = torch.randint(kinds, (batch, longest), generator=random)
            self.batches.append((atoms.to(device), sizes.to(device), longest))

    def get(self, number, tight):
        atoms, sizes, longest = self.batches[number % len(self.batches)]
        tight_room = -(-longest // 8) * 8
        atoms = F.pad(atoms, (0, (tight_room if tight else self.limit) - longest))
        there = torch.arange(atoms.shape[1], device=self.device) < sizes[:, None]
        return atoms, there, there[:, None, :] & there[:, :, None]


class Passing(nn.Module):
    """Each atom hears of all others of its molecule that are bound to it."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.say, self.hear = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h, bonds):
        return h + F.silu(self.hear(bonds @ self.say(self.norm(h))))


class Solubility(nn.Module):
    def __init__(self, kinds, width, depth):
        super().__init__()
        self.table = nn.Embedding(kinds, width)
        self.layers = nn.ModuleList(Passing(width) for _ in range(depth))
        self.last = nn.Linear(width, 1)

    def forward(self, atoms, there, bonds):
        h = self.table(atoms)
        bonds = bonds.to(h.dtype) / there.sum(1)[:, None, None]
        for layer in self.layers:
            h = layer(h, bonds)
        weights = there / there.sum(1, keepdim=True)
        return self.last((h * weights[..., None].to(h.dtype)).sum(1))[:, 0]


def prepare(device, repaired):
    kinds, width, depth, batch, limit = (
        (40, 256, 6, 1024, 128) if device == "cuda" else (10, 16, 2, 4, 32)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    batches = Batches(16, batch, kinds, limit, device)
    model = Solubility(kinds, width, depth).to(device, dtype)
    return batches, model, torch.optim.SGD(model.parameters(), lr=1e-4, fused=device == "cuda")


def run(state, steps, repaired):
    batches, model, optimizer = state
    total = torch.zeros((), device=batches.device)
    for step in range(steps):
        atoms, there, bonds = batches.get(step, tight=repaired)
        soluble = model(atoms, there, bonds).float()
        loss = (soluble - there.sum(1).float() / batches.limit).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=180)
