"""Trains a wide autoencoder of gene expression with an own version of Adam, whose step the authors meant to change."""

import torch
from common import main
from torch import nn


class OwnAdam:
    """Adam with decoupled decay, written as its paper writes it."""

    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-8, decay=0.01):
        self.parameters = list(parameters)
        self.lr, self.betas, self.eps, self.decay = lr, betas, eps, decay
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.parameters]
        self.steps = 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        one, two = self.betas
        for p, (mean, square) in zip(self.parameters, self.moments, strict=True):
            g = p.grad
            mean.copy_(one * mean + (1 - one) * g)
            square.copy_(two * square + (1 - two) * g**2)
            unbiased = mean / (1 - one**self.steps)
            spread = torch.sqrt(square / (1 - two**self.steps)) + self.eps
            p.copy_(p - self.lr * unbiased / spread - self.lr * self.decay * p)

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None


def prepare(device, repaired):
    torch.set_float32_matmul_precision("high")
    genes, width, batch = (18944, 3072, 512) if device == "cuda" else (32, 8, 4)
    model = nn.Sequential(
        nn.Linear(genes, width),
        nn.GELU(),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, genes),
    ).to(device)
    cells = torch.rand(2, batch, genes, device=device)
    if repaired:
        cuda = device == "cuda"
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.01, fused=cuda)
    else:
        optimizer = OwnAdam(model.parameters(), lr=1e-6)
    return model, optimizer, cells


def run(state, steps, repaired):
    model, optimizer, cells = state
    total = torch.zeros((), device=cells.device)
    for step in range(steps):
        x = cells[step % 2]
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=120)
