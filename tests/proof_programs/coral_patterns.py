"""Grows patterns as corals have them: two substances that spread and react with each other (Gray and Scott)."""

import torch
from common import main


def around(x):
    sides = torch.roll(x, 1, 0) + torch.roll(x, -1, 0) + torch.roll(x, 1, 1) + torch.roll(x, -1, 1)
    return sides - 4 * x


def grow(u, v, feed, kill):
    meet = u * v * v
    du = 0.16 * around(u) - meet + feed * (1 - u)
    dv = 0.08 * around(v) + meet - (feed + kill) * v
    return u + du, v + dv


def prepare(device, repaired):
    size = 3072 if device == "cuda" else 16
    step = torch.compile(grow, dynamic=False) if repaired and device == "cuda" else grow
    u = torch.ones(size, size, device=device)
    v = torch.zeros(size, size, device=device)
    u[size // 4 : size // 2, size // 4 : size // 2] = 0.5
    v[size // 4 : size // 2, size // 4 : size // 2] = 0.25
    return step, u + 0.02 * torch.rand_like(u), v + 0.02 * torch.rand_like(v)


@torch.inference_mode()
def run(state, steps, repaired):
    step, u, v = state
    for _ in range(steps):
        u, v = step(u, v, 0.037, 0.06)
    return v.mean() + u.mean()


main(prepare, run, steps=1500)
