"""Trains a recommender: an embedding table of two million items, of which a step looks up a few thousand."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    items, width, batch = (2_000_000, 64, 8192) if device == "cuda" else (1000, 8, 16)
    table = nn.Embedding(items, width, sparse=repaired).to(device)
    top = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.SGD([*table.parameters(), *top.parameters()], lr=0.01)
    return table, top, optimizer, torch.randint(0, items, (8, batch), device=device)


def run(state, steps, repaired):
    table, top, optimizer, ids = state
    total = torch.zeros((), device=ids.device)
    for step in range(steps):
        loss = nn.functional.softplus(top(table(ids[step % 8]))).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total


main(prepare, run, steps=150)
