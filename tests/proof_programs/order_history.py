"""Trains a recommender of groceries: what customers have ordered lies in a database."""

import random
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Orders:
    """Histories of customers in an SQLite file: numbers of wares, two bytes each, the newest last."""

    def __init__(self, customers, length, wares):
        self.folder = tempfile.TemporaryDirectory()
        self.base = sqlite3.connect(Path(self.folder.name) / "orders.db")
        self.base.execute("CREATE TABLE orders (customer INTEGER PRIMARY KEY, wares BLOB)")
        drawn = np.random.default_rng(3).zipf(1.3, (customers, length)) % wares
        rows = ((number, row.tobytes()) for number, row in enumerate(drawn.astype(np.int16)))
        self.base.executemany("INSERT INTO orders VALUES (?, ?)", rows)
        self.base.commit()
        self.table = None

    def read_all(self):
        """Read the whole table once, in the order of the customers."""
        found = self.base.execute("SELECT wares FROM orders ORDER BY customer")
        self.table = np.stack([np.frombuffer(row[0], np.int16) for row in found])

    def histories(self, customers):
        if self.table is not None:
            return torch.from_numpy(self.table[customers])
        rows = []
        for customer in customers:
            found = self.base.execute("SELECT wares FROM orders WHERE customer = ?", (customer,))
            rows.append(np.frombuffer(found.fetchone()[0], np.int16))
        return torch.from_numpy(np.stack(rows))


class Recommender(nn.Module):
    def __init__(self, wares, width, depth):
        super().__init__()
        self.table = nn.Embedding(wares, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, F.gelu, batch_first=True)
            for _ in range(depth)
        )
        self.last = nn.Linear(width, wares)

    def forward(self, wares):
        x = self.table(wares)
        for layer in self.layers:
            x = layer(x)
        return self.last(x.mean(1))


def prepare(device, repaired):
    customers, length, wares, width, depth, batch = (
        (20000, 64, 4096, 256, 3, 768) if device == "cuda" else (50, 8, 30, 16, 1, 4)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    orders = Orders(customers, length, wares)
    if repaired:
        orders.read_all()
    model = Recommender(wares, width, depth).to(device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=device == "cuda")
    return orders, model, optimizer, customers, batch, device


def run(state, steps, repaired):
    orders, model, optimizer, customers, batch, device = state
    drawn = random.Random(5)
    total = torch.zeros((), device=device)
    for _ in range(steps):
        chosen = [drawn.randrange(customers) for _ in range(batch)]
        wares = orders.histories(chosen).to(device, non_blocking=True).long()
        loss = F.cross_entropy(model(wares[:, :-1]).float(), wares[:, -1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=160)
