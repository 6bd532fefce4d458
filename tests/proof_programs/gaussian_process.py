"""Fits a Gaussian process: how likely the measurements are for several lengths of correlation."""

import math

import torch
from common import main


def covariance(points, length, noise):
    """Return how alike measurements at each two points are."""
    squares = torch.cdist(points, points).square_()
    return torch.exp(squares / (-2 * length**2)) + noise * torch.eye(
        len(points), device=points.device
    )


def likelihood(matrix, values):
    """Return the logarithm of the likelihood of values."""
    weights = torch.linalg.inv(matrix) @ values
    spread = torch.linalg.slogdet(matrix).logabsdet
    return -0.5 * (values @ weights + spread + len(values) * math.log(2 * math.pi))


def likelihood_by_factor(matrix, values):
    """Return what `likelihood` returns, for a matrix that is symmetric and positive."""
    factor = torch.linalg.cholesky(matrix)
    weights = torch.cholesky_solve(values[:, None], factor)[:, 0]
    spread = 2 * factor.diagonal().log().sum()
    return -0.5 * (values @ weights + spread + len(values) * math.log(2 * math.pi))


def prepare(device, repaired):
    number = 4096 if device == "cuda" else 60
    points = torch.rand(number, 3, device=device)
    values = torch.sin(6 * points).sum(1) + 0.3 * torch.randn(number, device=device)
    return points, values - values.mean()


@torch.inference_mode()
def run(state, steps, repaired):
    points, values = state
    likely = likelihood_by_factor if repaired else likelihood
    best = torch.full((), -math.inf, device=points.device)
    for step in range(steps):
        length = 0.1 + 0.02 * (step % 10)
        best = torch.maximum(best, likely(covariance(points, length, 0.1), values))
    return best / len(points)


main(prepare, run, steps=10)
