"""Moves the colours of a film to those of another: optimal transport by Sinkhorn's iterations."""

import torch
from common import main


def transport(costs, fuzziness, iterations, fixed):
    """Return the two scalings; `fixed` says that the kernel of the costs stays the same in all iterations."""
    n, m = costs.shape
    u = torch.full((n,), 1.0 / n, device=costs.device)
    v = torch.full((m,), 1.0 / m, device=costs.device)
    kernel = None
    for _ in range(iterations):
        if kernel is None or not fixed:
            kernel = torch.exp(-costs / fuzziness)
        u = (1.0 / n) / (kernel @ v)
        v = (1.0 / m) / (kernel.T @ u)
    return u, v


def prepare(device, repaired):
    count, iterations = (8192, 50) if device == "cuda" else (24, 5)
    here = torch.rand(2, count, 3, device=device)
    there = 0.7 * torch.rand(2, count, 3, device=device) + 0.2
    return here, there, iterations


@torch.inference_mode()
def run(state, steps, repaired):
    here, there, iterations = state
    total = torch.zeros((), device=here.device)
    for step in range(steps):
        colours, wanted = here[step % 2], there[step % 2]
        costs = torch.cdist(colours, wanted).square()
        u, v = transport(costs, 0.1, iterations, fixed=repaired)
        total += (u * len(u)).log().square().mean() + (v * len(v)).log().square().mean()
    return total / steps


main(prepare, run, steps=30)
