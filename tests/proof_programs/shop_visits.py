"""Learns whether a visitor of a shop will buy: forty things are known of a visit, each a number of a short list."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Tables(nn.Module):
    """Vectors of each thing that is known, from a table for each."""

    def __init__(self, weight, sizes):
        super().__init__()
        self.tables = nn.ModuleList(
            nn.Embedding.from_pretrained(part.clone(), freeze=False) for part in weight.split(sizes)
        )

    def forward(self, known):
        found = [table(known[:, k]) for k, table in enumerate(self.tables)]
        return torch.cat(found, 1)


class Shelf(nn.Module):
    """The same from one table, in which that of each thing begins after the one before."""

    def __init__(self, weight, sizes):
        super().__init__()
        self.table = nn.Embedding.from_pretrained(weight.clone(), freeze=False)
        starts = torch.tensor([0, *sizes[:-1]]).cumsum(0)
        self.register_buffer("starts", starts)

    def forward(self, known):
        return self.table(known + self.starts).flatten(1)


class Buyer(nn.Module):
    def __init__(self, vectors, things, width, hidden):
        super().__init__()
        self.vectors = vectors
        self.mlp = nn.Sequential(
            nn.Linear(things * width, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden // 2),
            nn.ReLU(),
            nn.Linear(hidden // 2, 1),
        )

    def forward(self, known):
        return self.mlp(self.vectors(known))[:, 0]


def prepare(device, repaired):
    things, longest, width, hidden, visits = (
        (40, 4000, 16, 512, 4096) if device == "cuda" else (4, 12, 4, 16, 8)
    )
    sizes = [longest // (1 + k % 4) for k in range(things)]
    weight = 0.1 * torch.randn(sum(sizes), width)
    known = torch.stack([torch.randint(size, (2, visits)) for size in sizes], -1).to(device)
    bought = (torch.rand(2, visits, device=device) < 0.2).float()
    vectors = Shelf(weight, sizes) if repaired else Tables(weight, sizes)
    torch.manual_seed(1)
    model = Buyer(vectors, things, width, hidden).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.05), known, bought


def run(state, steps, repaired):
    model, optimizer, known, bought = state
    total = torch.zeros((), device=known.device)
    for step in range(steps):
        scores = model(known[step % 2])
        loss = F.binary_cross_entropy_with_logits(scores, bought[step % 2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=250)
