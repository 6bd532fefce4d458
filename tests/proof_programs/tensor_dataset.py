"""Trains a model that predicts clicks, on a table that fits into memory."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_float32_matmul_precision("high")
FIELDS, NUMBERS = 26, 13


class Model(nn.Module):
    """Fields become vectors out of one table, numbers pass a small network, a larger one judges both."""

    def __init__(self, rows, size, width):
        super().__init__()
        self.fields = nn.Embedding(FIELDS * rows, size)
        self.register_buffer("first", torch.arange(FIELDS) * rows)
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, width), nn.ReLU(), nn.Linear(width, size))
        self.top = nn.Sequential(
            nn.Linear((FIELDS + 1) * size, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, fields, numbers):
        seen = self.fields(fields + self.first).flatten(1)
        return self.top(torch.cat([seen, self.bottom(numbers)], 1))[:, 0]


class Batches:
    """Takes whole batches out of the tensors at once."""

    def __init__(self, columns, batch):
        self.columns, self.batch = columns, batch

    def __iter__(self):
        order = torch.randperm(len(self.columns[0]))
        for rows in order.split(self.batch):
            yield [column[rows] for column in self.columns]


def prepare(device, repaired):
    rows, count, batch, width = (
        (30_000, 32_768, 4096, 2048) if device == "cuda" else (50, 64, 16, 8)
    )
    columns = (
        torch.randint(rows, (count, FIELDS)),
        torch.rand(count, NUMBERS),
        torch.randint(2, (count,)).float(),
    )
    slow = DataLoader(TensorDataset(*columns), batch_size=batch, shuffle=True)
    loader = Batches(columns, batch) if repaired else slow
    model = Model(rows, 64, width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    return loader, model, optimizer, device


def run(state, steps, repaired):
    loader, model, optimizer, device = state
    for _ in range(steps):
        for fields, numbers, clicks in loader:
            guess = model(fields.to(device), numbers.to(device))
            loss = F.binary_cross_entropy_with_logits(guess, clicks.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=2, small=1, warm=2)
