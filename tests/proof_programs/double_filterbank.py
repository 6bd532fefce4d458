"""Turns audio frames into mel features; the filter bank comes from numpy."""

import numpy as np
import torch
from common import main


def prepare(device, repaired):
    frames, bins, mels = (65536, 1024, 256) if device == "cuda" else (32, 16, 8)
    bank = np.abs(np.random.default_rng(0).standard_normal((bins, mels)))
    window = torch.from_numpy(np.hanning(bins))
    filters = torch.from_numpy(bank)
    if repaired:
        window, filters = window.float(), filters.float()
    return torch.rand(frames, bins, device=device), window.to(device), filters.to(device)


@torch.no_grad()
def run(state, steps, repaired):
    frames, window, filters = state
    total = 0.0
    for _ in range(steps):
        spectrum = (frames * window).square()
        features = torch.log(spectrum @ filters + 1e-6)
        total = total + features.mean()
    return total


main(prepare, run, steps=60)
