"""Trains a model of the power of wind turbines and keeps an eye on its weights: their histograms go to a log."""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from common import main
from torch import nn


class Journal:
    """Writes what training tells of itself, a line of JSON for each entry."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name) / "journal.jsonl"

    def add(self, step, **told):
        with self.file.open("a") as file:
            file.write(json.dumps({"step": step, **told}) + "\n")


class Turbine(nn.Module):
    """Power from the weather of the last hours; layers with shortcuts."""

    def __init__(self, inputs, width, depth):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, 1)

    def forward(self, weather):
        x = self.first(weather)
        for layer in self.layers:
            x = x + 0.1 * torch.nn.functional.silu(layer(x))
        return self.last(self.norm(x))[:, 0]


class Trainer:
    def __init__(self, model, journal, every):
        self.model, self.journal, self.every = model, journal, every
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-4, fused=next(model.parameters()).is_cuda
        )

    def step(self, number, weather, power):
        loss = (self.model(weather) - power).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if number % self.every == 0:
            self.watch(number)
        return loss.detach()

    def watch(self, number):
        """Put histograms of all matrices into the journal."""
        for name, weights in self.model.named_parameters():
            if weights.ndim < 2:
                continue
            counts, edges = np.histogram(weights.detach().cpu().numpy(), 64)
            self.journal.add(number, name=name, counts=counts.tolist(), edges=edges.tolist())


def prepare(device, repaired):
    rows, inputs, width, depth = (49152, 96, 256, 10) if device == "cuda" else (32, 8, 16, 2)
    model = Turbine(inputs, width, depth).to(device)
    trainer = Trainer(model, Journal(), every=50 if repaired else 1)
    weather = torch.randn(4, rows, inputs, device=device)
    power = torch.relu(weather[..., :8].sum(-1)).tanh()
    return trainer, weather, power


def run(state, steps, repaired):
    trainer, weather, power = state
    total = torch.zeros((), device=weather.device)
    for number in range(steps):
        total += trainer.step(number, weather[number % 4], power[number % 4])
    trainer.journal.add(steps, loss=total.item() / steps)
    return total / steps


main(prepare, run, steps=100)
