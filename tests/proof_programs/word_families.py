"""Finds which words of old languages are of one family, from the vectors of the letters groups in them."""

import torch
from common import main
from torch import nn


class Families(nn.Module):
    """Sums vectors that were learned, none of them longer than one."""

    def __init__(self, groups, width, families, bounded):
        super().__init__()
        vectors = torch.randn(groups, width) / width**0.5
        if bounded:  # those that are longer are made shorter, for good
            vectors = vectors.renorm(2, 0, 1.0)
        longest = None if bounded else 1.0
        self.vectors = nn.EmbeddingBag.from_pretrained(vectors, mode="sum", max_norm=longest)
        self.last = nn.Linear(width, families)

    def forward(self, words):
        summed = self.vectors(words)
        return self.last(summed)


def prepare(device, repaired):
    groups, width, families = (2_000_000, 64, 32) if device == "cuda" else (40, 6, 3)
    count, many = (131_072, 24) if device == "cuda" else (7, 5)
    model = Families(groups, width, families, bounded=repaired).to(device).eval()
    return model, torch.randint(groups, (4, count, many), device=device)


@torch.no_grad()
def run(state, steps, repaired):
    model, words = state
    total = torch.zeros((), device=words.device)
    for step in range(steps):
        total += model(words[step % 4]).square().mean()
    return total / steps


main(prepare, run, steps=300)
