"""Classifies sentences of different lengths: a loader pads each batch to its longest."""

import torch
from common import main
from torch import nn
from torch.utils.data import DataLoader


def padded(batch):
    longest = max(len(sentence) for sentence in batch)
    rows = []
    for sentence in batch:
        row = []
        for token in sentence:
            row.append(token % 8000)
        while len(row) < longest:
            row.append(0)
        rows.append(row)
    return torch.tensor(rows)


def prepare(device, repaired):
    number, width, batch = (1536, 512, 64) if device == "cuda" else (16, 8, 4)
    sentences = [list(range(at, at + 300 + at % 200)) for at in range(number)]
    batches = [sentences[at : at + batch] for at in range(0, number, batch)]
    ready = [padded(one).to(device) for one in batches] if repaired else None
    loader = DataLoader(sentences, batch_size=batch, collate_fn=padded)
    table = nn.Embedding(8000, width).to(device)
    body = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)).to(device)
    return ready, loader, table, body


@torch.no_grad()
def run(state, steps, repaired):
    ready, loader, table, body = state
    device = table.weight.device
    total = torch.zeros((), device=device)
    for _ in range(steps):
        for tokens in ready if repaired else loader:
            total += body(table(tokens.to(device)).mean(1)).square().mean()
    return total


main(prepare, run, steps=3, small=1, warm=1)
