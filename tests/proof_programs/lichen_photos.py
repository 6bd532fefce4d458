"""Learns to name lichens from features of photographs, and keeps two slow averages of the weights, as diffusion people do."""

import copy

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Mixer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + F.gelu(self.linear(self.norm(x)))


class Names(nn.Module):
    def __init__(self, features, width, depth, lichens):
        super().__init__()
        self.enter = nn.Linear(features, width)
        self.mixers = nn.ModuleList(Mixer(width) for _ in range(depth))
        self.last = nn.Linear(width, lichens)

    def forward(self, photos):
        x = self.enter(photos)
        for mixer in self.mixers:
            x = mixer(x)
        return self.last(x)


class Average:
    """A copy of a model whose weights follow those of the model slowly."""

    def __init__(self, model, kept, all_at_once):
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.kept, self.all_at_once = kept, all_at_once

    @torch.no_grad()
    def follow(self, model):
        slow, fast = list(self.model.parameters()), list(model.parameters())
        if self.all_at_once:
            torch._foreach_lerp_(slow, fast, 1 - self.kept)
            return
        for mine, new in zip(slow, fast, strict=True):
            mine.copy_(mine * self.kept + new.detach() * (1 - self.kept))


def prepare(device, repaired):
    cuda = device == "cuda"
    photos, features, width, depth, lichens = (256, 768, 384, 30, 900) if cuda else (4, 6, 8, 2, 3)
    torch.manual_seed(6)
    model = Names(features, width, depth, lichens).to(device)
    averages = [Average(model, kept, repaired) for kept in (0.99, 0.999)]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    seen = torch.randn(8, photos, features, device=device)
    names = torch.randint(lichens, (8, photos), device=device)
    return model, averages, optimizer, seen, names


def run(state, steps, repaired):
    model, averages, optimizer, seen, names = state
    total = torch.zeros((), device=seen.device)
    for step in range(steps):
        loss = F.cross_entropy(model(seen[step % 8]), names[step % 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for average in averages:
            average.follow(model)
        total += loss.detach()
    with torch.no_grad():
        far = averages[0].model(seen[0]).abs().mean()
    return total / steps + far


main(prepare, run, steps=120)
