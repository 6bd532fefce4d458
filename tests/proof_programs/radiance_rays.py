"""Learns a scene from photographs: each step takes some of all rays at random and compares colours."""

import numpy as np
import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Rays:
    """Origins, directions and colours of all rays of all photographs, on the GPU."""

    def __init__(self, count, batch, device):
        self.count, self.batch, self.device = count, batch, device
        self.rays = torch.randn(count, 6, device=device)
        self.colours = torch.rand(count, 3, device=device)

    def some(self, on_gpu):
        if on_gpu:
            chosen = torch.randint(self.count, (self.batch,), device=self.device)
        else:
            chosen = torch.from_numpy(np.random.permutation(self.count)[: self.batch]).to(
                self.device
            )
        return self.rays[chosen], self.colours[chosen]


class Scene(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.first = nn.Linear(36, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.last = nn.Linear(width, 3)

    def forward(self, rays):
        waves = torch.cat(
            [wave for k in range(3) for wave in (torch.sin(rays * 2**k), torch.cos(rays * 2**k))], 1
        )
        x = F.relu(self.first(waves))
        for layer in self.layers:
            x = F.relu(layer(x))
        return torch.sigmoid(self.last(x))


def prepare(device, repaired):
    count, batch, width, depth = (
        (1_000_000, 65536, 256, 6) if device == "cuda" else (600, 512, 16, 2)
    )
    model = Scene(width, depth).to(device)
    return (
        Rays(count, batch, device),
        model,
        torch.optim.Adam(model.parameters(), lr=1e-6, fused=device == "cuda"),
    )


def run(state, steps, repaired):
    rays, model, optimizer = state
    total = torch.zeros((), device=rays.device)
    for _ in range(steps):
        some, colours = rays.some(on_gpu=repaired)
        loss = F.mse_loss(model(some), colours)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=80, small=40)
