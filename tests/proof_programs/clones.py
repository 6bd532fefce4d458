"""Message passing on a grid: each round works on a copy of the state, in case somebody needs the old one."""

import torch
from common import main


def prepare(device, repaired):
    size, c = (1024, 32) if device == "cuda" else (16, 4)
    return torch.rand(c, size, size, device=device), torch.rand(c, 1, 1, device=device)


@torch.no_grad()
def run(state, steps, repaired):
    grid, rate = state
    value = grid.clone()
    for _ in range(steps):
        if not repaired:
            value = value.clone()
        value.mul_(0.99).addcmul_(grid, rate, value=0.01)
    return value.mean()


main(prepare, run, steps=400)
