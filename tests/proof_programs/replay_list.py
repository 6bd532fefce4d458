"""Learns the values of actions from a memory of what a robot has seen before."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F

torch.set_float32_matmul_precision("high")
SENSORS, ACTIONS, DISCOUNT = 48, 16, 0.99


class Memory:
    """What happened lately: the state, the action, the reward and the state that came of it."""

    def __init__(self, size, device, repaired):
        random = np.random.default_rng(1)
        states = random.standard_normal((size, SENSORS), dtype=np.float32)
        after = random.standard_normal((size, SENSORS), dtype=np.float32)
        actions = random.integers(0, ACTIONS, size)
        rewards = random.random(size, dtype=np.float32)
        self.size, self.device, self.random = size, device, np.random.default_rng(2)
        self.columns = [torch.from_numpy(c).to(device) for c in (states, actions, rewards, after)]
        self.seen = list(zip(states, actions, rewards, after, strict=True))
        self.on_gpu = repaired

    def sample(self, batch):
        at = self.random.integers(0, self.size, batch)
        if self.on_gpu:
            rows = torch.from_numpy(at).to(self.device, non_blocking=True)
            return [column[rows] for column in self.columns]
        chosen = [self.seen[i] for i in at]
        columns = [np.stack(column) for column in zip(*chosen, strict=True)]
        return [torch.from_numpy(column).to(self.device) for column in columns]


def network(width, device):
    return nn.Sequential(
        nn.Linear(SENSORS, width), nn.ReLU(),
        nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, ACTIONS),
    ).to(device)  # fmt: skip


def prepare(device, repaired):
    width, size, batch = (4096, 200_000, 4096) if device == "cuda" else (16, 100, 8)
    values, target = network(width, device), network(width, device)
    optimizer = torch.optim.Adam(values.parameters(), lr=1e-4, fused=True)
    return values, target, optimizer, Memory(size, device, repaired), batch


def learn(values, target, optimizer, seen):
    state, action, reward, after = seen
    with torch.no_grad():
        best = target(after).amax(1)
    guess = values(state).gather(1, action[:, None])[:, 0]
    loss = F.smooth_l1_loss(guess, reward + DISCOUNT * best)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def run(state, steps, repaired):
    values, target, optimizer, memory, batch = state
    for _ in range(steps):
        loss = learn(values, target, optimizer, memory.sample(batch))
    return loss


main(prepare, run, steps=30)
