"""Learns the values of actions from experience, and looks again at what surprised it (prioritised replay)."""

import numpy as np
import torch
from common import main
from torch import nn


class Tree:
    """Sums of priorities: the leaves are those of single experiences, each node adds up two."""

    def __init__(self, capacity, at_once):
        self.capacity, self.at_once = capacity, at_once
        self.sums = np.zeros(2 * capacity)
        self.update(np.arange(capacity), np.ones(capacity))

    def update(self, which, priorities):
        if self.at_once or len(which) == self.capacity:
            nodes = which + self.capacity
            self.sums[nodes] = priorities
            while nodes[0] > 1:
                nodes = nodes // 2
                self.sums[nodes] = self.sums[2 * nodes] + self.sums[2 * nodes + 1]
            return
        for one, priority in zip(which, priorities, strict=True):
            node = one + self.capacity
            self.sums[node] = priority
            while node > 1:
                node //= 2
                self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1]

    def find(self, amounts):
        """Return the experiences at these amounts of the sum of all."""
        if self.at_once:
            nodes = np.ones(len(amounts), np.int64)
            while nodes[0] < self.capacity:
                nodes = 2 * nodes
                right = amounts >= self.sums[nodes]
                amounts = amounts - self.sums[nodes] * right
                nodes = nodes + right
            return nodes - self.capacity
        found = []
        for amount in amounts:
            node = 1
            while node < self.capacity:
                node = 2 * node
                if amount >= self.sums[node]:
                    amount -= self.sums[node]
                    node += 1
            found.append(node - self.capacity)
        return np.array(found)


def prepare(device, repaired):
    capacity, batch, width = (1 << 16, 512, 512) if device == "cuda" else (64, 4, 8)
    online, target = (
        nn.Sequential(
            nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 6)
        ).to(device)
        for _ in range(2)
    )
    optimizer = torch.optim.Adam(
        online.parameters(), lr=1e-4, fused=True if device == "cuda" else None
    )
    memory = {
        "before": torch.randn(capacity, 16, device=device),
        "after": torch.randn(capacity, 16, device=device),
        "action": torch.randint(6, (capacity,), device=device),
        "reward": torch.randn(capacity, device=device),
    }
    return online, target, optimizer, memory, Tree(capacity, repaired), batch


def run(state, steps, repaired):
    online, target, optimizer, memory, tree, batch = state
    random = np.random.default_rng(3)
    total = 0
    for _ in range(steps):
        amounts = (np.arange(batch) + random.random(batch)) / batch * tree.sums[1] * (1 - 1e-9)
        which = tree.find(amounts)
        at = torch.from_numpy(which).to(memory["reward"].device)
        before, after, action, reward = (values[at] for values in memory.values())
        with torch.no_grad():
            best = target(after).amax(-1)
        value = online(before).gather(1, action[:, None])[:, 0]
        error = reward + 0.9 * best - value
        loss = error.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        tree.update(which, error.detach().abs().cpu().numpy().astype(float) + 0.1)
        total = total + loss.detach()
    return total / steps


main(prepare, run, steps=40)
