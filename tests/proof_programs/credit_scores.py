"""Learns who pays back a credit, by steps as long as the curvature along the gradient allows."""

import torch
import torch.nn.functional as F
from common import main
from torch.func import hessian


class Loss:
    def __init__(self, people, paid):
        self.people, self.paid = people, paid

    def __call__(self, weights):
        scores = F.linear(weights[None], self.people)[0]
        fit = (F.softplus(scores) - self.paid * scores).mean()
        return fit + 1e-3 * weights.square().sum()


class Descent:
    """Finds the gradient and how fast it changes along itself, with the matrix of all second derivatives or without."""

    def __init__(self, loss, direct):
        self.loss, self.direct = loss, direct

    def slope_and_bend(self, weights):
        weights = weights.detach().requires_grad_()
        (slope,) = torch.autograd.grad(self.loss(weights), weights, create_graph=self.direct)
        fixed = slope.detach()
        if self.direct:
            return fixed, torch.autograd.grad(slope @ fixed, weights)[0]
        second = hessian(self.loss)(weights.detach())
        return fixed, second @ fixed


def prepare(device, repaired):
    count, known = (262_144, 512) if device == "cuda" else (30, 5)
    people = torch.randn(count, known, device=device)
    truth = torch.randn(known, device=device) / known**0.5
    paid = (people @ truth + 0.5 * torch.randn(count, device=device) > 0).float()
    return Descent(Loss(people, paid), direct=repaired), torch.zeros(known, device=device)


def run(state, steps, repaired):
    descent, weights = state
    for _ in range(steps):
        slope, bend = descent.slope_and_bend(weights)
        weights = weights - slope * (slope @ slope / (slope @ bend))
    return descent.loss(weights)


main(prepare, run, steps=100)
