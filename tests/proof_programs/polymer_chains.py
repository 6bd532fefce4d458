"""Scores how well a long polymer holds together: what each monomer hears from those that it is bound to."""

import torch
from common import main
from torch import nn


def bonds(monomers, extra, device):
    """Return which pairs are bound (2, bonds): the chain, and some bridges across it."""
    first = torch.arange(monomers - 1, device=device)
    chain = torch.stack((first, first + 1))
    bridges = torch.randint(monomers, (2, extra * monomers), device=device)
    pairs = torch.cat((chain, bridges), 1)
    pairs = torch.cat((pairs, pairs.flip(0)), 1)
    return torch.unique(pairs, dim=1)


def bond_matrix(pairs, monomers, compact):
    """Return how much a monomer hears from each other, as a mean over its bonds."""
    counts = torch.bincount(pairs[0], minlength=monomers).clamp(min=1)
    values = 1.0 / counts[pairs[0]].float()
    matrix = torch.sparse_coo_tensor(pairs, values, (monomers, monomers)).coalesce()
    return matrix.to_sparse_csr() if compact else matrix.to_dense()


class Hearing(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.own, self.others = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, matrix):
        heard = matrix @ self.others(x)
        return x + torch.relu(self.norm(self.own(x) + heard))


class Strength(nn.Module):
    def __init__(self, kinds, width, depth):
        super().__init__()
        self.kinds = nn.Embedding(kinds, width)
        self.hearings = nn.ModuleList(Hearing(width) for _ in range(depth))
        self.last = nn.Linear(width, 1)

    def forward(self, kinds, matrix):
        x = self.kinds(kinds)
        for hearing in self.hearings:
            x = hearing(x, matrix)
        return self.last(x).mean()


def prepare(device, repaired):
    torch.set_float32_matmul_precision("high")
    monomers, extra, kinds, width, depth, variants = (
        (20000, 3, 20, 128, 5, 8) if device == "cuda" else (24, 2, 4, 8, 2, 3)
    )
    matrix = bond_matrix(bonds(monomers, extra, device), monomers, compact=repaired)
    model = Strength(kinds, width, depth).to(device).eval()
    return model, matrix, torch.randint(kinds, (variants, monomers), device=device)


@torch.no_grad()
def run(state, steps, repaired):
    model, matrix, kinds = state
    total = torch.zeros((), device=kinds.device)
    for step in range(steps):
        total += model(kinds[step % len(kinds)], matrix)
    return total / steps


main(prepare, run, steps=250)
