"""Trains a flow model on the codes of photographs of glass vases: a step mixes each code with noise and learns the way back."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Schedule:
    """Times of the flow, from noise to picture, and how much noise there is at each."""

    def __init__(self, count, device, together):
        self.timesteps = torch.linspace(1000, 1, count, device=device)
        self.sigmas = self.timesteps / 1000
        self.together = together

    def index_for(self, timestep):
        indices = (self.timesteps == timestep).nonzero()
        return indices[0].item()

    def noise_of(self, timesteps):
        if self.together:
            indices = (self.timesteps[None] == timesteps[:, None]).int().argmax(dim=1)
        else:
            indices = [self.index_for(timestep) for timestep in timesteps]
        return self.sigmas[indices][:, None]


class Flow(nn.Module):
    def __init__(self, features, width, depth):
        super().__init__()
        self.time = nn.Linear(1, width)
        self.first, self.last = nn.Linear(features, width), nn.Linear(width, features)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def forward(self, x, sigma):
        x = self.first(x) + self.time(sigma)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + F.silu(layer(norm(x)))
        return self.last(x)


def prepare(device, repaired):
    cuda = device == "cuda"
    vases, batch, features, width, depth, times = (
        (4096, 64, 1024, 1024, 8, 1000) if cuda else (16, 4, 12, 16, 2, 10)
    )
    torch.set_float32_matmul_precision("high")
    schedule = Schedule(times, device, together=repaired)
    model = Flow(features, width, depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=cuda)
    codes = torch.randn(vases, features, device=device)
    noise = torch.randn(batch, features, device=device)
    drawn = torch.randint(times, (64, batch), device=device)
    return schedule, model, optimizer, codes, noise, drawn


def run(state, steps, repaired):
    schedule, model, optimizer, codes, noise, drawn = state
    total = torch.zeros((), device=codes.device)
    batch = len(noise)
    for step in range(steps):
        start = step * batch % len(codes)
        clean = codes[start : start + batch]
        timesteps = schedule.timesteps[drawn[step % len(drawn)]]
        sigma = schedule.noise_of(timesteps)
        mixed = (1 - sigma) * clean + sigma * noise
        loss = F.mse_loss(model(mixed, sigma), noise - clean)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=100)
