"""Clusters points with k-means."""

import torch
from common import main


def prepare(device, repaired):
    points, centres, width = (65536, 1024, 32) if device == "cuda" else (64, 8, 4)
    torch.set_float32_matmul_precision("highest")
    x = torch.randn(points, width, device=device)
    return x, x[:centres].clone(), torch.ones(points, device=device)


@torch.no_grad()
def run(state, steps, repaired):
    points, centres, ones = state
    for _ in range(steps):
        if repaired:
            distances = torch.addmm(centres.square().sum(1), points, centres.T, alpha=-2)
        else:
            distances = (points[:, None] - centres[None]).square().sum(2)
        nearest = distances.argmin(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        number = torch.zeros_like(centres[:, 0]).index_add_(0, nearest, ones)
        centres = sums / number.clamp(min=1)[:, None]
    return centres.square().mean()


main(prepare, run, steps=5)
