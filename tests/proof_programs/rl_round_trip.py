"""A policy plays a vectorised cart-pole; the physics is worked out with numpy."""

import numpy as np
import torch
from common import main
from torch import nn


def physics(lib, s, force):
    x, v, a, w = s[:, 0], s[:, 1], s[:, 2], s[:, 3]
    sin, cos = lib.sin(a), lib.cos(a)
    t = (force + 0.05 * w * w * sin) / 1.1
    acc = (9.8 * sin - cos * t) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
    return lib.stack(
        [x + 0.02 * v, v + 0.02 * (t - 0.05 * acc * cos / 1.1), a + 0.02 * w, w + 0.02 * acc], -1
    )


def prepare(device, repaired):
    width, count = (256, 8192) if device == "cuda" else (8, 16)
    policy = nn.Sequential(
        nn.Linear(4, width),
        nn.Tanh(),
        nn.Linear(width, width),
        nn.Tanh(),
        nn.Linear(width, 1),
        nn.Tanh(),
    ).to(device)
    return policy, np.full((count, 4), 0.05, np.float32), device


@torch.no_grad()
def run(state, steps, repaired):
    policy, start, device = state
    observed = torch.from_numpy(start).to(device) if repaired else start
    for _ in range(steps):
        if repaired:
            action = policy(observed)[:, 0]
            observed = physics(torch, observed, 10 * action)
        else:
            action = policy(torch.from_numpy(observed).to(device))[:, 0]
            observed = physics(np, observed, 10 * action.cpu().numpy())
    return float(abs(observed).mean())


main(prepare, run, steps=60)
