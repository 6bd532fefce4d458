"""Recommends books: the best of a whole catalogue for each reader, without those that the reader has read."""

import torch
from common import main

WANTED = 20


def filtered(best, read):
    """Return, for lists of books from the best on, the first of each that its reader has not read."""
    chosen = []
    for books, known in zip(best, read, strict=True):
        fresh = []
        for book in books:
            if book not in known:
                fresh.append(book)
            if len(fresh) == WANTED:
                break
        chosen.append(fresh)
    return chosen


def prepare(device, repaired):
    readers, books, width, known = (2048, 60000, 96, 200) if device == "cuda" else (6, 600, 8, 20)
    taste = torch.randn(4, readers, width, device=device)
    table = torch.randn(books, width, device=device)
    # readers like what they read: much of what would be recommended is known
    liked = torch.stack([(some @ table.T).topk(known + known // 4).indices for some in taste])
    read = liked[:, :, torch.randperm(liked.shape[2], device=device)[:known]]
    sets = [[set(row) for row in some] for some in read.tolist()]
    return taste, table, read, sets, known


@torch.inference_mode()
def run(state, steps, repaired):
    taste, table, read, sets, known = state
    total = 0
    for step in range(steps):
        at = step % len(taste)
        scores = taste[at] @ table.T
        if repaired:
            scores.scatter_(1, read[at], float("-inf"))
            chosen = scores.topk(WANTED).indices.tolist()
        else:
            best = scores.topk(known + WANTED).indices.tolist()
            chosen = filtered(best, sets[at])
        total += sum(sum(books) for books in chosen) / len(chosen)
    return total / steps


main(prepare, run, steps=50)
