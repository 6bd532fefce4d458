"""Filters the readings of sensors, which arrive as lists of Python numbers."""

import random

import numpy as np
import torch
from common import main


def prepare(device, repaired):
    readings, width = (200_000, 512) if device == "cuda" else (64, 8)
    random.seed(0)
    lists = [[random.random() for _ in range(readings // 4)] for _ in range(4)]
    weight = torch.randn(width, width, device=device)
    arrays = [torch.from_numpy(np.array(one, np.float32)).to(device) for one in lists]
    return lists, arrays, weight


def run(state, steps, repaired):
    lists, arrays, weight = state
    total = torch.zeros((), device=weight.device)
    width = weight.shape[0]
    for step in range(steps):
        if repaired:
            x = arrays[step % 4]
        else:
            x = torch.tensor(lists[step % 4], device=weight.device)
        x = x[: len(x) // width * width].view(-1, width)
        for _ in range(8):
            x = torch.tanh(x @ weight)
        total += x.square().mean()
    return total


main(prepare, run, steps=60)
