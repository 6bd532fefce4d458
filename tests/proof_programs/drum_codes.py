"""Learns codes for sounds of drums: each vector of an encoder takes the nearest entry of a book, whose entries follow their vectors."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Book(nn.Module):
    """Entries (count, width), counts of vectors that chose them, and sums of those vectors, averaged over steps."""

    def __init__(self, count, width, by_product):
        super().__init__()
        self.by_product = by_product
        self.register_buffer("entries", torch.randn(count, width))
        self.register_buffer("counts", torch.ones(count))
        self.register_buffer("sums", self.entries.clone())

    def choose(self, x):
        """The nearest entry of each vector: (vectors,)."""
        gaps = torch.addmm(self.entries.square().sum(1), x, self.entries.t(), alpha=-2)
        return gaps.argmin(1)

    def taken(self, x, ids):
        """Entries of each vector, and counts and sums of vectors of each entry."""
        if self.by_product:
            chosen = F.one_hot(ids, len(self.entries)).to(x.dtype)
            return chosen @ self.entries, chosen.sum(0), chosen.t() @ x
        counts = torch.zeros_like(self.counts).index_add_(0, ids, torch.ones_like(x[:, 0]))
        sums = torch.zeros_like(self.sums).index_add_(0, ids, x)
        return self.entries.index_select(0, ids), counts, sums

    @torch.no_grad()
    def forward(self, x, share=0.99):
        taken, counts, sums = self.taken(x, self.choose(x))
        self.counts.lerp_(counts, 1 - share)
        self.sums.lerp_(sums, 1 - share)
        self.entries.copy_(self.sums / self.counts[:, None].clamp_min(1e-3))
        return taken


class Drums(nn.Module):
    def __init__(self, samples, hidden, width, count, by_product):
        super().__init__()
        self.enter = nn.Sequential(nn.Linear(samples, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.book = Book(count, width, by_product)
        self.leave = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, samples))

    def forward(self, sounds):
        x = self.enter(sounds)
        taken = self.book(x.detach())
        close = F.mse_loss(x, taken)
        return F.mse_loss(self.leave(x + (taken - x).detach()), sounds) + 0.25 * close


def prepare(device, repaired):
    cuda = device == "cuda"
    sounds, samples, hidden, width, count = (32768, 64, 128, 64, 4096) if cuda else (24, 6, 8, 4, 5)
    torch.manual_seed(16)
    model = Drums(samples, hidden, width, count, by_product=not repaired).to(device)
    waves = torch.randn(4, sounds, samples, device=device)
    return model, torch.optim.SGD(model.parameters(), lr=1e-4), waves


def run(state, steps, repaired):
    model, optimizer, waves = state
    total = torch.zeros((), device=waves.device)
    for step in range(steps):
        loss = model(waves[step % 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=150)
