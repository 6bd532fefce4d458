"""Turns speech into codes with a chain of codebooks, each of which takes what the ones before left over, and counts how often codes are used."""

import torch
from common import main


class Codebook:
    """Counts its codes with bincount, or by adding ones where they belong."""

    def __init__(self, codes, width, device, scatter):
        self.entries = torch.randn(codes, width, device=device) / 2
        self.half = self.entries.square().sum(1) / 2
        self.used = torch.zeros(codes, device=device, dtype=torch.int64)
        self.scatter = scatter

    def count(self, chosen):
        if self.scatter:
            self.used.scatter_add_(0, chosen, torch.ones_like(chosen))
        else:
            self.used += torch.bincount(chosen, minlength=len(self.used))

    def __call__(self, rest):
        chosen = (rest @ self.entries.T - self.half).argmax(1)
        self.count(chosen)
        return rest - self.entries[chosen]


def prepare(device, repaired):
    frames, width, codes, depth = (2048, 64, 512, 16) if device == "cuda" else (20, 8, 6, 3)
    books = [Codebook(codes, width, device, scatter=repaired) for _ in range(depth)]
    return books, torch.randn(8, frames, width, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    books, speech = state
    total = torch.zeros((), device=speech.device)
    for book in books:
        book.used.zero_()
    for step in range(steps):
        rest = speech[step % len(speech)]
        for book in books:
            rest = book(rest)
        total += rest.square().mean()
    busiest = torch.stack([book.used.max() for book in books]).float().mean()
    return total / steps + busiest / steps / speech.shape[1]


main(prepare, run, steps=500)
