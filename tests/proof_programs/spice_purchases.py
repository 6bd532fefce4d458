"""Sorts spices of a shop into kinds by what is bought with them: a graph network over drawn neighbours of each batch."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Draws:
    """Batches of a sampler: each spice of a batch, those around it, and those around these."""

    def __init__(self, spices, batches, batch, around):
        self.rounds = []
        for _ in range(batches):
            first = torch.randint(spices, (batch,))
            near = torch.randint(spices, (batch, around))
            far = torch.randint(spices, (batch, around, around))
            self.rounds.append(torch.cat((first[:, None], near, far.flatten(1)), 1))


class Features:
    """What is known of each spice (spices, width), and where it lies."""

    def __init__(self, table, device, near):
        self.table, self.device = table.to(device) if near else table, device

    def of(self, ids):
        return self.table[ids.to(self.table.device)].to(self.device)


class Sage(nn.Module):
    def __init__(self, width, hidden, kinds, around):
        super().__init__()
        self.around = around
        self.own, self.others = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.own2, self.others2 = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, kinds)

    def forward(self, x):
        """Return scores (batch, kinds) from features (batch, 1 + around + around², width)."""
        around = self.around
        inner, far = x[:, : 1 + around], x[:, 1 + around :].unflatten(1, (around, around))
        heard = torch.cat((inner[:, 1:].mean(1, keepdim=True), far.mean(2)), 1)
        y = F.relu(self.own(inner) + self.others(heard))
        y = F.relu(self.own2(y[:, 0]) + self.others2(y[:, 1:].mean(1)))
        return self.last(y)


def prepare(device, repaired):
    cuda = device == "cuda"
    spices, width, hidden, kinds, batch, around = (
        (400000, 256, 256, 40, 512, 9) if cuda else (30, 6, 8, 3, 4, 2)
    )
    torch.manual_seed(9)
    features = Features(torch.randn(spices, width), device, near=repaired)
    draws = Draws(spices, 6, batch, around)
    kinds_of = torch.randint(kinds, (spices,), device=device)
    model = Sage(width, hidden, kinds, around).to(device)
    return features, draws, kinds_of, model, torch.optim.SGD(model.parameters(), lr=1e-2)


def run(state, steps, repaired):
    features, draws, kinds_of, model, optimizer = state
    total = torch.zeros((), device=kinds_of.device)
    for step in range(steps):
        ids = draws.rounds[step % len(draws.rounds)]
        x = features.of(ids)
        loss = F.cross_entropy(model(x), kinds_of[ids[:, 0].to(kinds_of.device)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=60)
