"""Learns which coupons customers of a supermarket use: an embedding for each field of an offer, and products of all pairs of fields."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Pairs(nn.Module):
    """Products of each field with each field before it: (offers, pairs) of (offers, fields, width)."""

    def __init__(self, fields, keep):
        super().__init__()
        places = self.places(fields) if keep else None
        self.register_buffer("kept", places, persistent=False)

    def places(self, fields):
        return torch.tensor([i * fields + j for i in range(fields) for j in range(i)])

    def forward(self, x):
        products = (x @ x.mT).flatten(1)
        if self.kept is not None:
            return products.index_select(1, self.kept)
        return products.index_select(1, self.places(x.shape[1]).to(x.device))


class Offers(nn.Module):
    def __init__(self, fields, values, numbers, width, hidden, keep):
        super().__init__()
        self.table = nn.Embedding(fields * values, width, sparse=True)
        self.register_buffer("starts", torch.arange(fields) * values)
        self.numbers = nn.Sequential(
            nn.Linear(numbers, hidden), nn.ReLU(), nn.Linear(hidden, width)
        )
        self.pairs = Pairs(fields + 1, keep)
        self.top = nn.Sequential(
            nn.Linear(width + (fields + 1) * fields // 2, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, numbers, ids):
        told = self.numbers(numbers)
        x = torch.cat((told[:, None], self.table(ids + self.starts)), 1)
        return self.top(torch.cat((told, self.pairs(x)), 1))[:, 0]


def prepare(device, repaired):
    cuda = device == "cuda"
    offers, fields, values, numbers, width, hidden = (
        (1024, 127, 2000, 16, 16, 128) if cuda else (6, 5, 7, 3, 4, 8)
    )
    torch.manual_seed(10)
    model = Offers(fields, values, numbers, width, hidden, keep=repaired).to(device)
    batches = [
        (
            torch.randn(offers, numbers, device=device),
            torch.randint(0, values, (offers, fields), device=device),
            torch.randint(0, 2, (offers,), device=device).float(),
        )
        for _ in range(4)
    ]
    return model, torch.optim.SGD(model.parameters(), lr=0.01), batches


def run(state, steps, repaired):
    model, optimizer, batches = state
    total = torch.zeros((), device=batches[0][0].device)
    for step in range(steps):
        numbers, ids, used = batches[step % 4]
        loss = F.binary_cross_entropy_with_logits(model(numbers, ids), used)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=200)
