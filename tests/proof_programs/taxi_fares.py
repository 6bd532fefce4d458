"""Predicts fares of taxi rides from a table that fits into memory: where, when, by whom."""

import torch
from common import main
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Fares(nn.Module):
    def __init__(self, places, size, numbers, width):
        super().__init__()
        self.places = nn.Embedding(places, size)
        self.net = nn.Sequential(
            nn.Linear(4 * size + numbers, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, places, numbers):
        return self.net(torch.cat([self.places(places).flatten(1), numbers], 1))[:, 0]


class Slices:
    def __init__(self, tensors, batch):
        self.tensors, self.batch = tensors, batch

    def __iter__(self):
        for start in range(0, len(self.tensors[0]), self.batch):
            yield [tensor[start : start + self.batch] for tensor in self.tensors]


def prepare(device, repaired):
    cuda = device == "cuda"
    places, size, numbers, width, rides, batch = (
        (20_000, 32, 12, 1024, 65_536, 4096) if cuda else (20, 4, 3, 8, 64, 16)
    )
    torch.set_float32_matmul_precision("high")
    tensors = (
        torch.randint(places, (rides, 4)),
        torch.rand(rides, numbers),
        torch.rand(rides) * 3,
    )
    if repaired:
        batches = Slices(tensors, batch)
    else:
        batches = DataLoader(TensorDataset(*tensors), batch_size=batch, shuffle=False)
    model = Fares(places, size, numbers, width).to(device)
    return batches, model, torch.optim.SGD(model.parameters(), lr=1e-3, fused=True), device


def run(state, steps, repaired):
    batches, model, optimizer, device = state
    total = torch.zeros((), device=device)
    for _ in range(steps):
        for places, numbers, fares in batches:
            guess = model(places.to(device), numbers.to(device))
            loss = nn.functional.l1_loss(guess, fares.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
    return total / steps


main(prepare, run, steps=3, small=1, warm=1)
