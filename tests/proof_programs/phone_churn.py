"""Learns which customers of a phone company will leave, from a table that fits into memory."""

from itertools import islice

import torch
from common import main
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Customers(Dataset):
    """What is known of each customer: numbers, classes such as the tariff, and whether they left."""

    def __init__(self, count, numbers, classes):
        self.numbers = torch.randn(count, numbers)
        self.classes = torch.randint(16, (count, classes))
        self.left = (self.numbers[:, 0] > 1).float()

    def __len__(self):
        return len(self.left)

    def __getitem__(self, index):
        return self.numbers[index], self.classes[index], self.left[index]


class Churn(nn.Module):
    def __init__(self, numbers, classes, width):
        super().__init__()
        self.embedding = nn.Embedding(16 * classes, 8)
        self.register_buffer("starts", 16 * torch.arange(classes))
        self.layers = nn.Sequential(
            nn.Linear(numbers + 8 * classes, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, numbers, classes):
        known = self.embedding(classes + self.starts).flatten(1)
        return self.layers(torch.cat([numbers, known], dim=1))[:, 0]


def loader_of(customers, batch, repaired):
    order = RandomSampler(customers, generator=torch.Generator().manual_seed(5))
    batches = BatchSampler(order, batch, drop_last=True)
    if repaired:
        return DataLoader(customers, sampler=batches, batch_size=None)
    return DataLoader(customers, batch_sampler=batches)


def prepare(device, repaired):
    cuda = device == "cuda"
    count, batch, numbers, classes, width = (
        (200_000, 2048, 24, 10, 512) if cuda else (60, 6, 5, 3, 8)
    )
    customers = Customers(count, numbers, classes)
    model = Churn(numbers, classes, width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=cuda)
    return customers, batch, model, optimizer, device


def run(state, steps, repaired):
    customers, batch, model, optimizer, device = state
    loader = loader_of(customers, batch, repaired)
    total = torch.zeros((), device=device)
    for numbers, classes, left in islice(loader, steps):
        numbers, classes, left = numbers.to(device), classes.to(device), left.to(device)
        loss = F.binary_cross_entropy_with_logits(model(numbers, classes), left)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=25)
