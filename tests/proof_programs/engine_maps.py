"""Learns what an engine burns at each load and speed: layers whose curves are sums of Chebyshev polynomials."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Curves(nn.Module):
    """Each output is a sum of curves of all inputs, each curve a sum of polynomials up to a degree."""

    def __init__(self, inputs, outputs, degree, at_once):
        super().__init__()
        self.degree, self.at_once = degree, at_once
        scale = 1 / (inputs * (degree + 1)) ** 0.5
        self.shares = nn.Parameter(torch.randn(inputs, degree + 1, outputs) * scale)
        self.register_buffer("degrees", torch.arange(degree + 1.0))

    def polynomials(self, x):
        """Values (rows, inputs, degree + 1) of all polynomials at numbers between -1 and 1."""
        if self.at_once:
            return (x.acos()[..., None] * self.degrees).cos()
        values = [torch.ones_like(x), x]
        for k in range(2, self.degree + 1):
            values.append(2 * x * values[k - 1] - values[k - 2])
        return torch.stack(values, -1)

    def forward(self, x):
        x = x.tanh().clamp(-0.999, 0.999)
        return self.polynomials(x).flatten(1) @ self.shares.flatten(0, 1)


def prepare(device, repaired):
    cuda = device == "cuda"
    rows, inputs, width, depth, degree = (512, 6, 64, 6, 24) if cuda else (8, 3, 6, 2, 5)
    torch.manual_seed(13)
    widths = [inputs, *[width] * depth, 1]
    model = nn.Sequential(
        *(Curves(widths[k], widths[k + 1], degree, repaired) for k in range(depth + 1))
    ).to(device)
    known = torch.randn(4, rows, inputs, device=device)
    burnt = torch.rand(4, rows, 1, device=device)
    return model, torch.optim.Adam(model.parameters(), lr=1e-5), known, burnt


def run(state, steps, repaired):
    model, optimizer, known, burnt = state
    total = torch.zeros((), device=known.device)
    for step in range(steps):
        loss = F.mse_loss(model(known[step % 4]), burnt[step % 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=60)
