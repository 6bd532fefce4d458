"""Trains a wide network that tells how fast enzymes work from descriptors of their sequences."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Rates(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = F.rms_norm(x + F.relu(layer(x)), x.shape[1:])
        return self.last(x)[:, 0]


class Training:
    def __init__(self, model, clear, fused):
        self.model, self.clear = model, clear
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=fused)

    def step(self, enzymes, rates):
        loss = F.mse_loss(self.model(enzymes).float(), rates)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.clear)
        return loss.detach()


def prepare(device, repaired):
    width, depth, batch = (8192, 8, 64) if device == "cuda" else (24, 2, 4)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = Rates(width, depth).to(dtype)
    enzymes = torch.randn(8, batch, width, device=device, dtype=dtype)
    return (
        Training(model, repaired, device == "cuda"),
        enzymes,
        torch.randn(8, batch, device=device),
    )


def run(state, steps, repaired):
    training, enzymes, rates = state
    total = torch.zeros((), device=rates.device)
    for step in range(steps):
        total += training.step(enzymes[step % 8], rates[step % 8])
    return total / steps


main(prepare, run, steps=350)
