"""Foretells clicks on advertisements from features that interact in pairs (a factorization machine) and a deep network."""

import torch
from common import main
from torch import nn


class Interactions(nn.Module):
    """The sum of products of all pairs of vectors: pair by pair, or from their sum and the sum of their squares."""

    def __init__(self, fields, by_pair):
        super().__init__()
        self.by_pair = by_pair
        first, second = torch.triu_indices(fields, fields, 1)
        self.register_buffer("first", first)
        self.register_buffer("second", second)

    def forward(self, vectors):
        if self.by_pair:
            left = vectors.index_select(1, self.first)
            right = vectors.index_select(1, self.second)
            return (left * right).sum((1, 2))
        return (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2


class Clicks(nn.Module):
    def __init__(self, entries, fields, width, by_pair):
        super().__init__()
        self.table = nn.Embedding(entries, width)
        self.pairs = Interactions(fields, by_pair)
        self.deep = nn.Sequential(
            nn.Linear(fields * width, 512), nn.ReLU(),
            nn.Linear(512, 256), nn.ReLU(),
            nn.Linear(256, 1),
        )  # fmt: skip

    def forward(self, features):
        vectors = self.table(features)
        deep = self.deep(vectors.flatten(1)).squeeze(1)
        return torch.sigmoid(self.pairs(vectors) / 100 + deep)


def prepare(device, repaired):
    entries, fields, width, shown = (
        (1_000_000, 32, 16, 16384) if device == "cuda" else (50, 5, 4, 8)
    )
    model = Clicks(entries, fields, width, by_pair=not repaired).to(device).eval()
    return model, torch.randint(entries, (4, shown, fields), device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, features = state
    total = torch.zeros((), device=features.device)
    for step in range(steps):
        total += model(features[step % 4]).mean()
    return total / steps


main(prepare, run, steps=900)
