"""Teaches a robot's hand to put pieces of a puzzle where they belong, from kept episodes whose goals are changed afterwards."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Episodes:
    """Episodes of a hand: what it saw, what it did, and which goal it had and reached, by moment."""

    def __init__(self, count, length, seen, done, goal, copied):
        self.rng = np.random.default_rng(11)
        self.count, self.length, self.copied = count, length, copied
        widths = {"seen": seen, "done": done, "goal": goal, "reached": goal}
        self.kept = {
            name: self.rng.standard_normal((count, length + 1, width), dtype=np.float32)
            for name, width in widths.items()
        }

    def all(self):
        if self.copied:
            return {name: kept[: self.count].copy() for name, kept in self.kept.items()}
        return {name: kept[: self.count] for name, kept in self.kept.items()}

    def draw(self, size):
        """Moments of some episodes, most of them with a goal that was reached later on."""
        episodes = self.all()
        which = self.rng.integers(0, self.count, size)
        when = self.rng.integers(0, self.length, size)
        later = when + 1 + (self.rng.random(size) * (self.length - when)).astype(np.int64)
        goals = np.where(
            self.rng.random((size, 1)) < 0.8,
            episodes["reached"][which, np.minimum(later, self.length)],
            episodes["goal"][which, when],
        )
        reached = episodes["reached"][which, when + 1]
        reward = -(np.square(reached - goals).sum(1) > 0.5).astype(np.float32)
        return episodes["seen"][which, when], episodes["done"][which, when], goals, reward


class Critic(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
            nn.Linear(width, 1),
        )

    def forward(self, seen, done, goals):
        return self.layers(torch.cat((seen, done, goals), 1))[:, 0]


def prepare(device, repaired):
    cuda = device == "cuda"
    count, length, seen, done, goal, width, size = (
        (2500, 50, 40, 20, 8, 256, 1024) if cuda else (8, 6, 5, 3, 2, 8, 12)
    )
    torch.manual_seed(3)
    episodes = Episodes(count, length, seen, done, goal, copied=not repaired)
    critic = Critic(seen + done + goal, width).to(device)
    return episodes, critic, torch.optim.Adam(critic.parameters(), lr=1e-3), size, device


def run(state, steps, repaired):
    episodes, critic, optimizer, size, device = state
    total = torch.zeros((), device=device)
    for _ in range(steps):
        *inputs, reward = (torch.from_numpy(part).to(device) for part in episodes.draw(size))
        loss = F.mse_loss(critic(*inputs), reward)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=80)
