"""Lets clusters of ions move by the forces of a learned potential, whose energy is a sum over pairs."""

import torch
from common import main
from torch import nn


class Potential(nn.Module):
    def __init__(self, shells, width, depth):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.5, 6.0, shells))
        layers = [nn.Linear(shells, width), nn.SiLU()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.SiLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, places):
        gaps = places[:, :, None] - places[:, None]
        far = (gaps.square().sum(-1, keepdim=True) + 0.01).sqrt()
        shells = torch.exp(-2 * (far - self.centres).square())
        return (self.layers(shells) / (1 + far)).sum((1, 2, 3)) / places.shape[1]


class Motion:
    def __init__(self, potential, places, create_graph):
        self.potential, self.begin, self.create_graph = potential, places, create_graph

    def forces(self, places):
        places = places.detach().requires_grad_()
        energy = self.potential(places)
        (slope,) = torch.autograd.grad(energy.sum(), places, create_graph=self.create_graph)
        return -slope.detach(), energy.detach()

    def __call__(self, steps):
        places, speeds = self.begin, torch.zeros_like(self.begin)
        total = torch.zeros((), device=places.device)
        for _ in range(steps):
            forces, energy = self.forces(places)
            speeds = 0.99 * speeds + 0.01 * forces
            places = places + 0.01 * speeds
            total += energy.mean()
        return total / steps


def prepare(device, repaired):
    clusters, ions, shells, width, depth = (
        (32, 64, 32, 128, 3) if device == "cuda" else (2, 4, 5, 6, 1)
    )
    potential = Potential(shells, width, depth).to(device)
    return Motion(
        potential, 2 * torch.randn(clusters, ions, 3, device=device), create_graph=not repaired
    )


def run(state, steps, repaired):
    return state(steps)


main(prepare, run, steps=500)
