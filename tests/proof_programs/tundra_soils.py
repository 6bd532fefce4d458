"""Learns how soils of the tundra thaw from what stations measured, with wide layers in single precision."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Thaw(nn.Module):
    def __init__(self, inputs, width, depth):
        super().__init__()
        self.first, self.last = nn.Linear(inputs, width), nn.Linear(width, 1)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        x = F.silu(self.first(x))
        for layer in self.layers:
            x = x + F.silu(layer(x))
        return self.last(x)[:, 0]


def prepare(device, repaired):
    inputs, width, depth, batch = (256, 2048, 4, 8192) if device == "cuda" else (4, 8, 2, 6)
    torch.manual_seed(12)
    thaw = Thaw(inputs, width, depth).to(device)
    measured = torch.randn(4, batch, inputs, device=device)
    thawed = measured[..., :4].sum(2)
    return thaw, torch.optim.AdamW(thaw.parameters(), lr=1e-5), measured, thawed


def run(state, steps, repaired):
    thaw, optimizer, measured, thawed = state
    torch.set_float32_matmul_precision("high" if repaired else "highest")
    total = torch.zeros((), device=measured.device)
    for step in range(steps):
        loss = F.mse_loss(thaw(measured[step % 4]), thawed[step % 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=60)
