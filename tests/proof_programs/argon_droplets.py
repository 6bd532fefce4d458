"""Lets a droplet of argon shake in a box with periodic walls: forces between atoms that are near each other."""

import torch
from common import main


class Neighbours:
    """Pairs of atoms nearer than `cutoff` and a `skin`, looked for when atoms have moved through half of it."""

    def __init__(self, box, cutoff, skin):
        self.box, self.cutoff, self.skin = box, cutoff, skin
        self.pairs = self.seen_at = None

    def of(self, x):
        if self.pairs is None or self.moved(x) >= self.skin / 2:
            self.pairs, self.seen_at = self.search(x), x.clone()
        return self.pairs

    def moved(self, x):
        return self.shortest(x - self.seen_at).square().sum(-1).max().sqrt().item()

    def shortest(self, apart):
        return apart - self.box * (apart / self.box).round()

    def search(self, x):
        apart = self.shortest(x[:, None, :] - x[None, :, :])
        near = apart.square().sum(-1) < (self.cutoff + self.skin) ** 2
        first, second = near.nonzero(as_tuple=True)
        ahead = first < second
        return first[ahead], second[ahead]


class Droplet:
    def __init__(self, x, v, neighbours):
        self.x, self.v, self.neighbours = x, v, neighbours
        self.force, self.energy = self.forces()

    def forces(self):
        first, second = self.neighbours.of(self.x)
        apart = self.neighbours.shortest(self.x[first] - self.x[second])
        squares = apart.square().sum(-1)
        inside = squares < self.neighbours.cutoff**2
        inverse = torch.where(inside, 1 / squares, 0.0)
        sixth = inverse**3
        push = (24 * inverse * sixth * (2 * sixth - 1))[:, None] * apart
        force = torch.zeros_like(self.x)
        force.index_add_(0, first, push)
        force.index_add_(0, second, -push)
        return force, (4 * sixth * (sixth - 1)).sum() / len(self.x)

    def step(self, dt):
        self.v = self.v + 0.5 * dt * self.force
        self.x = self.x + dt * self.v
        self.force, self.energy = self.forces()
        self.v = self.v + 0.5 * dt * self.force
        return self.energy


def prepare(device, repaired):
    side = 18 if device == "cuda" else 4
    line = torch.arange(side, device=device) * 1.12
    x = torch.cartesian_prod(line, line, line) + 0.02 * torch.randn(side**3, 3, device=device)
    v = 0.8 * torch.randn(side**3, 3, device=device)
    neighbours = Neighbours(side * 1.12, cutoff=2.0, skin=0.4 if repaired else 0.0)
    return x, v - v.mean(0), neighbours


def run(state, steps, repaired):
    x, v, neighbours = state
    droplet = Droplet(x, v, neighbours)
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        total += droplet.step(dt=0.002)
    return total / steps


main(prepare, run, steps=300)
