"""Trains a recommender with many goals (click, cart, purchase ...) on one trunk, and logs what each goal does."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class ManyGoals(nn.Module):
    """Looks up the fields of a visit, mixes them in a trunk, and has a small head for each goal."""

    def __init__(self, fields, rows, width, hidden, goals):
        super().__init__()
        self.table = nn.Embedding(fields * rows, width)
        self.trunk = nn.Sequential(
            nn.Linear(fields * width, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden // 2), nn.ReLU(),
        )  # fmt: skip
        self.heads = nn.ModuleDict(
            {
                f"goal{k}": nn.Sequential(nn.Linear(hidden // 2, 64), nn.ReLU(), nn.Linear(64, 1))
                for k in range(goals)
            }
        )


class Log:
    """Averages of named values over the steps; `later` keeps them on the GPU until somebody asks."""

    def __init__(self, later):
        self.later, self.sums = later, {}

    def add(self, name, value):
        value = value.detach() if self.later else value.item()
        self.sums[name] = self.sums.get(name, 0) + value

    def total(self):
        return sum(float(value) for value in self.sums.values())


def prepare(device, repaired):
    torch.set_float32_matmul_precision("high")
    fields, rows, width, hidden, goals, batch = (
        (32, 2000, 32, 2048, 20, 4096) if device == "cuda" else (4, 10, 4, 16, 3, 8)
    )
    model = ManyGoals(fields, rows, width, hidden, goals).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device == "cuda")
    first = torch.arange(fields, device=device) * rows
    visits = [first + torch.randint(rows, (batch, fields), device=device) for _ in range(4)]
    labels = (torch.rand(4, goals, batch, device=device) < 0.3).float()
    return model, optimizer, visits, labels


def run(state, steps, repaired):
    model, optimizer, visits, labels = state
    log = Log(later=repaired)
    for step in range(steps):
        hidden = model.trunk(model.table(visits[step % 4]).flatten(1))
        loss = 0
        for (name, head), wanted in zip(model.heads.items(), labels[step % 4], strict=True):
            guess = head(hidden)[:, 0]
            of_goal = F.binary_cross_entropy_with_logits(guess, wanted)
            log.add(f"{name}/loss", of_goal)
            log.add(f"{name}/rate", guess.detach().sigmoid().mean())
            loss = loss + of_goal
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return log.total() / steps


main(prepare, run, steps=200)
