"""Standardises sensor data with the mean and deviation that a numpy file held, then clips and squashes it."""

import numpy as np
import torch
from common import main


def prepare(device, repaired):
    rows, columns = (262_144, 256) if device == "cuda" else (64, 8)
    x = torch.randn(rows, columns, device=device)
    mean = torch.from_numpy(np.linspace(-1, 1, columns)).to(device)
    deviation = torch.from_numpy(np.linspace(1, 2, columns)).to(device)
    if repaired:
        mean, deviation = mean.float(), deviation.float()
    return x, mean, deviation


def run(state, steps, repaired):
    x, mean, deviation = state
    total = 0.0
    for _ in range(steps):
        z = (x - mean) / deviation
        z = z.clamp(-3, 3)
        z = torch.tanh(z)
        total = total + z.mean()
    return total


main(prepare, run, steps=60)
