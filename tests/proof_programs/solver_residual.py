"""Solves a large linear system with conjugate gradients, as a layer of a physics model does."""

import torch
from common import main

TOLERANCE = 1e-12
LOOK = 25  # iterations between two looks at the error, where it is looked at now and then


def system(size, device):
    """Return a symmetric matrix that is not too easy, and a right-hand side."""
    a = torch.randn(size, size, device=device) / size**0.5
    a = a @ a.T
    a.diagonal().add_(0.05)
    return a, torch.randn(size, device=device)


def prepare(device, repaired):
    size = 7168 if device == "cuda" else 32
    systems = [system(size, device) for _ in range(2)]
    return systems, 200 if device == "cuda" else 10


def apply_preconditioner(scale, residual):
    return residual * scale


def solve(a, b, most, look):
    """Return x of a x = b; looks at the error after each `look` iterations."""
    scale = 1 / a.diagonal()
    x = torch.zeros_like(b)
    residual = b.clone()
    direction = apply_preconditioner(scale, residual)
    z = direction.clone()
    old = residual @ z
    for iteration in range(1, most + 1):
        product = a @ direction
        length = old / (direction @ product)
        x = torch.addcmul(x, direction, length)
        residual = torch.addcmul(residual, product, length, value=-1)
        if iteration % look == 0 and residual.square().sum().item() < TOLERANCE:
            break
        z = apply_preconditioner(scale, residual)
        new = residual @ z
        direction = torch.addcmul(z, direction, new / old)
        old = new
    return x


def energy(a, b, x):
    return 0.5 * (x @ (a @ x)) - b @ x


@torch.inference_mode()
def run(state, steps, repaired):
    systems, most = state
    total = 0.0
    for step in range(steps):
        a, b = systems[step % len(systems)]
        x = solve(a, b * (1 + 0.1 * step), most, LOOK if repaired else 1)
        total = total + energy(a, b, x)
    return total


main(prepare, run, steps=6)
