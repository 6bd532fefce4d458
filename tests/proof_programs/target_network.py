"""Learns values of actions: a target network follows the one that learns."""

import copy

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def network(states, width, actions):
    parts = [nn.Linear(states, width), nn.ReLU()]
    for _ in range(28):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(width, actions))


def prepare(device, repaired):
    states, width, actions, batch = (64, 1024, 18, 8192) if device == "cuda" else (4, 8, 2, 4)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    values = network(states, width, actions).to(device, dtype)
    seen = torch.randn(2, batch, states, device=device, dtype=dtype)
    taken = torch.randint(actions, (batch, 1), device=device)
    optimizer = torch.optim.Adam(values.parameters(), lr=1e-4, fused=True)
    return values, copy.deepcopy(values), optimizer, seen, taken


def run(state, steps, repaired):
    values, target, optimizer, (before, after), taken = state
    for _ in range(steps):
        with torch.no_grad():
            aim = 1 + 0.9 * target(after).amax(1, keepdim=True)
        loss = F.mse_loss(values(before).gather(1, taken), aim)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if repaired:
            with torch.no_grad():
                torch._foreach_copy_(list(target.parameters()), list(values.parameters()))
        else:
            target = copy.deepcopy(values)
    return loss.detach()


main(prepare, run, steps=20)
