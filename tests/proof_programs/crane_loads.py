"""Learns to set down loads of a crane: ten critics, whose least word counts, judge moves, and follow their targets."""

import copy

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Critic(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.layers = nn.ModuleList(
            (nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, 1))
        )

    def forward(self, x):
        x = F.relu(self.layers[0](x))
        x = F.relu(self.layers[1](x))
        return self.layers[2](x)[..., 0]


class Critics(nn.Module):
    """Says of each critic (critics, batch)."""

    def __init__(self, critics):
        super().__init__()
        self.critics = nn.ModuleList(critics)

    def forward(self, x):
        return torch.stack([critic(x) for critic in self.critics])


class StackedCritics(nn.Module):
    """The same, with the matrices of all critics in one tensor for each layer."""

    def __init__(self, critics):
        super().__init__()
        layers = list(zip(*(critic.layers for critic in critics), strict=True))
        weights = [torch.stack([one.weight.detach().T for one in layer]) for layer in layers]
        biases = [torch.stack([one.bias.detach() for one in layer])[:, None] for layer in layers]
        self.weights, self.biases = nn.ParameterList(weights), nn.ParameterList(biases)

    def forward(self, x):
        x = x.expand(len(self.weights[0]), *x.shape)
        x = F.relu(torch.baddbmm(self.biases[0], x, self.weights[0]))
        x = F.relu(torch.baddbmm(self.biases[1], x, self.weights[1]))
        return torch.baddbmm(self.biases[2], x, self.weights[2])[..., 0]


def prepare(device, repaired):
    cuda = device == "cuda"
    count, batch, inputs, width = (10, 256, 40, 256) if cuda else (3, 5, 6, 8)
    torch.manual_seed(16)
    critics = [Critic(inputs, width) for _ in range(count)]
    model = (StackedCritics if repaired else Critics)(critics).to(device)
    target = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    now = torch.randn(16, batch, inputs, device=device)
    later = now + 0.1 * torch.randn_like(now)
    return model, target, optimizer, now, later, now.square().mean(-1)


def run(state, steps, repaired):
    model, target, optimizer, now, later, rewards = state
    total = torch.zeros((), device=now.device)
    slow, fast = list(target.parameters()), list(model.parameters())
    for step in range(steps):
        k = step % len(now)
        with torch.no_grad():
            goal = rewards[k] + 0.98 * target(later[k]).amin(0)
        loss = (model(now[k]) - goal).square().mean(1).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(slow, fast, 0.01)
        total += loss.detach()
    return total / steps


main(prepare, run, steps=250)
