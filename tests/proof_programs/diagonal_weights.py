"""Fits logistic regressions by Newton's method (iteratively reweighted least squares), one for each of several answers."""

import torch
from common import main


def prepare(device, repaired):
    people, traits, answers = (12288, 192, 8) if device == "cuda" else (40, 3, 2)
    x = torch.randn(people, traits, device=device) / traits**0.5
    x[:, 0] = 1
    wanted = torch.randn(traits, answers, device=device)
    said = (torch.rand(people, answers, device=device) < torch.sigmoid(x @ wanted)).float()
    return x, said, 1e-2 * torch.eye(traits, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    x, said, ridge = state
    total = 0
    for step in range(steps):
        answer = said[:, step % said.shape[1]]
        beta = torch.zeros(x.shape[1], device=x.device)
        for _ in range(5):
            p = torch.sigmoid(x @ beta)
            weight = p * (1 - p)
            if repaired:
                curve = (x * weight[:, None]).T @ x
            else:
                curve = x.T @ torch.diag(weight) @ x
            beta = beta + torch.linalg.solve(curve + ridge, x.T @ (answer - p) - ridge @ beta)
        total = total + beta.square().mean()
    return total / steps


main(prepare, run, steps=30, warm=1)
