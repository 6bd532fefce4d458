"""Trains a recommender: what a user chose must score higher than wares drawn by how popular they are."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Towers(nn.Module):
    """A network for users and one for wares, whose product is the score."""

    def __init__(self, users, wares, width):
        super().__init__()
        self.users, self.wares = nn.Embedding(users, width), nn.Embedding(wares, width)
        self.left, self.right = (
            nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
            for _ in range(2)
        )

    def forward(self, users, wares):
        return torch.einsum(
            "bd,bnd->bn", self.left(self.users(users)), self.right(self.wares(wares))
        )


class Sampler:
    """Draws wares by how often they were bought."""

    def __init__(self, bought, once):
        self.chances = bought / bought.sum()
        self.sums = self.chances.cumsum() if once else None
        if once:
            self.sums /= self.sums[-1]
        self.random = np.random.default_rng(5)

    def draw(self, number, each):
        if self.sums is None:
            return self.random.choice(len(self.chances), (number, each), p=self.chances)
        return self.sums.searchsorted(self.random.random((number, each)), side="right")


def prepare(device, repaired):
    users, wares, width, batch = (50_000, 600_000, 64, 512) if device == "cuda" else (20, 50, 8, 4)
    with torch.device(device):
        towers = Towers(users, wares, width)
    layers = [*towers.left.parameters(), *towers.right.parameters()]
    optimizer = torch.optim.Adam(layers, lr=1e-4, fused=True if device == "cuda" else None)
    towers.users.requires_grad_(False)
    towers.wares.requires_grad_(False)
    bought = 1 / np.arange(1, wares + 1) ** 0.8
    chosen = torch.randint(wares, (8, batch), device=device)
    who = torch.randint(users, (8, batch), device=device)
    return towers, optimizer, Sampler(bought, repaired), who, chosen


def run(state, steps, repaired):
    towers, optimizer, sampler, who, chosen = state
    total = 0
    for step in range(steps):
        users, wares = who[step % len(who)], chosen[step % len(who)]
        others = torch.from_numpy(sampler.draw(len(users), 6)).to(users.device)
        scores = towers(users, torch.cat([wares[:, None], others], 1))
        loss = F.cross_entropy(scores, torch.zeros_like(users))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = total + loss.detach()
    return total / steps


main(prepare, run, steps=50)
