"""Sorts blood cells into kinds by measures of each: a mixture of normal distributions that is fitted by turns of guesses and means."""

import math

import torch
from common import main


def log_determinants_by_values(covariances, roots):
    """Logarithms of determinants (kinds,) from eigenvalues."""
    return torch.linalg.eigvalsh(covariances).log().sum(1)


def log_determinants_by_roots(covariances, roots):
    """The same, from the Cholesky roots that are there already."""
    return 2 * roots.diagonal(dim1=1, dim2=2).log().sum(1)


class Mixture:
    def __init__(self, means, log_determinants):
        kinds, width = means.shape
        self.means, self.log_determinants = means, log_determinants
        self.shares = means.new_full((kinds,), 1 / kinds)
        self.covariances = torch.eye(width, device=means.device).repeat(kinds, 1, 1)

    def guesses(self, cells):
        """How likely each cell is of each kind (kinds, cells), and the mean log likelihood."""
        roots = torch.linalg.cholesky(self.covariances)
        off = (cells - self.means[:, None]).mT
        off = torch.linalg.solve_triangular(roots, off, upper=False).square().sum(1)
        size = self.log_determinants(self.covariances, roots)
        logs = -0.5 * (off + size[:, None] + cells.shape[1] * math.log(2 * math.pi))
        logs = logs + self.shares.log()[:, None]
        return logs.softmax(0), logs.logsumexp(0).mean()

    def turn(self, cells):
        guesses, likely = self.guesses(cells)
        counts = guesses.sum(1) + 1e-3
        self.shares = counts / counts.sum()
        self.means = guesses @ cells / counts[:, None]
        off = (cells - self.means[:, None]) * (guesses / counts[:, None]).sqrt()[..., None]
        width = torch.eye(cells.shape[1], device=cells.device)
        self.covariances = off.mT @ off + 0.1 * width
        return likely


def prepare(device, repaired):
    cuda = device == "cuda"
    cells, width, kinds = (8192, 160, 12) if cuda else (60, 5, 2)
    torch.manual_seed(21)
    middles = torch.randn(kinds, width)
    measures = middles[torch.randint(0, kinds, (cells,))] + 0.7 * torch.randn(cells, width)
    start = middles + 0.1 * torch.randn(kinds, width)
    find = log_determinants_by_roots if repaired else log_determinants_by_values
    return measures.to(device), start.to(device), find


@torch.inference_mode()
def run(state, steps, repaired):
    measures, start, find = state
    mixture = Mixture(start, find)
    total = torch.zeros((), device=measures.device)
    for _ in range(steps):
        total += mixture.turn(measures)
    return total / steps


main(prepare, run, steps=30)
