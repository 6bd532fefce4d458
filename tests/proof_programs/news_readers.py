"""Ranks news for readers: a reader is the mean of the vectors of what he has read, which are looked up in a large table."""

import torch
from common import main
from torch import nn


class Library:
    """Vectors of all articles; as they were learnt, a row for each feature, or turned, a row for each article."""

    def __init__(self, articles, features, device, by_article):
        self.table = torch.empty(features, articles, device=device)
        for row in range(features):
            self.table[row] = torch.randn(articles, device=device)
        self.by_article = by_article
        if by_article:
            self.table = self.table.T.contiguous()

    def readers(self, read):
        """Return a row for each reader: the mean of the vectors of what he read."""
        if self.by_article:
            return self.table[read].mean(1)
        return self.table[:, read].mean(2).T


class Ranker(nn.Module):
    """Scores the articles of today for each reader."""

    def __init__(self, features, hidden):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features)
        )

    def forward(self, readers, today):
        return self.layers(readers) @ today.T


class Stream:
    """Requests: what some thousands of readers have read, and the articles of the day."""

    def __init__(self, articles, readers, history, features, device):
        self.read = torch.randint(articles, (8, readers, history), device=device)
        self.today = torch.randn(300, features, device=device)

    def request(self, number):
        return self.read[number % len(self.read)], self.today


def prepare(device, repaired):
    articles, features, readers, history, hidden = (
        (1_000_000, 256, 4096, 32, 256) if device == "cuda" else (200, 16, 8, 4, 8)
    )
    library = Library(articles, features, device, by_article=repaired)
    stream = Stream(articles, readers, history, features, device)
    return library, Ranker(features, hidden).to(device).eval(), stream


@torch.inference_mode()
def run(state, steps, repaired):
    library, ranker, stream = state
    total = torch.zeros((), device=library.table.device)
    for number in range(steps):
        read, today = stream.request(number)
        scores = ranker(library.readers(read), today)
        total += scores.topk(10, 1).values.mean()
    return total / steps


main(prepare, run, steps=1000)
