"""Trains one network on the energies of crystals from many collections, each with a head and a loss of its own."""

import torch
from common import main
from torch import nn


class TaskLoss:
    """The mean error of one collection over those crystals that are of it."""

    def __init__(self, task, on_device):
        self.task, self.on_device = task, on_device

    def __call__(self, guess, energy, collections):
        loss = (guess - energy).abs()
        if self.on_device:
            mask = collections == self.task
            kept = torch.nan_to_num(loss * mask)
            return kept.sum() / mask.sum().clamp(min=1)
        mask = collections == self.task
        count = loss[mask].numel()
        if not torch.all(loss.isfinite()):
            loss = torch.nan_to_num(loss)
        return (loss * mask).sum() / max(count, 1)


class Crystals(nn.Module):
    def __init__(self, features, width, depth, tasks):
        super().__init__()
        self.first = nn.Linear(features, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.heads = nn.ModuleList(nn.Linear(width, 1) for _ in range(tasks))

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = x + nn.functional.silu(layer(x))
        return [head(x)[:, 0] for head in self.heads]


def prepare(device, repaired):
    cuda = device == "cuda"
    count, features, width, depth, tasks = (8192, 256, 1024, 6, 20) if cuda else (32, 6, 8, 2, 3)
    torch.set_float32_matmul_precision("high")
    model = Crystals(features, width, depth, tasks).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    losses = [TaskLoss(task, on_device=repaired) for task in range(tasks)]
    x = torch.randn(4, count, features, device=device)
    energy = torch.randn(4, count, device=device)
    collections = torch.randint(tasks, (4, count), device=device)
    return model, optimizer, losses, x, energy, collections


def run(state, steps, repaired):
    model, optimizer, losses, x, energy, collections = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        at = step % 4
        guesses = model(x[at])
        loss = sum(
            part(guess, energy[at], collections[at])
            for part, guess in zip(losses, guesses, strict=True)
        )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=250)
