"""Learns what chess positions are worth, with an optimizer that makes the update of each matrix orthogonal (Muon)."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

A, B, C = 3.4445, -4.7750, 2.0315


def orthogonal(update):
    """Bring the singular values of a matrix, or of each of a batch, near to one (Newton and Schulz)."""
    x = update / (update.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = A * x + (B * square + C * (square @ square)) @ x
    return x


class Muon:
    """Its matrices are all of one shape."""

    def __init__(self, matrices, batched, rate=1e-3):
        self.matrices, self.batched, self.rate = matrices, batched, rate
        self.momenta = [torch.zeros_like(matrix) for matrix in matrices]

    @torch.no_grad()
    def step(self):
        gradients = [matrix.grad for matrix in self.matrices]
        torch._foreach_mul_(self.momenta, 0.95)
        torch._foreach_add_(self.momenta, gradients)
        if self.batched:
            updates = list(orthogonal(torch.stack(self.momenta)).unbind())
        else:
            updates = [orthogonal(momentum) for momentum in self.momenta]
        torch._foreach_add_(self.matrices, updates, alpha=-self.rate)
        for matrix in self.matrices:
            matrix.grad = None


class Values(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.register_buffer("last", torch.randn(1, width) / width**0.5)

    def forward(self, x):
        for layer in self.layers:
            x = x + F.relu(layer(x)) / 4
        return F.linear(x, self.last).tanh()


def prepare(device, repaired):
    width, depth, positions = (256, 64, 1024) if device == "cuda" else (8, 3, 6)
    model = Values(width, depth).to(device)
    optimizer = Muon(list(model.parameters()), batched=repaired)
    boards = torch.randn(4, positions, width, device=device)
    worth = torch.rand(4, positions, 1, device=device) * 2 - 1
    start = [parameter.detach().clone() for parameter in model.parameters()]
    return model, optimizer, boards, worth, start


def run(state, steps, repaired):
    model, optimizer, boards, worth, start = state
    with torch.no_grad():
        torch._foreach_copy_(optimizer.matrices, start)
        torch._foreach_zero_(optimizer.momenta)
    total = torch.zeros((), device=boards.device)
    for step in range(steps):
        loss = F.mse_loss(model(boards[step % 4]), worth[step % 4])
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=70)
