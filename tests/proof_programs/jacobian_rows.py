"""Derives the outputs of a network that models a robot with respect to its inputs."""

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    states, width, batch = (128, 1024, 1024) if device == "cuda" else (4, 8, 2)
    model = nn.Sequential(
        nn.Linear(states, width),
        nn.Tanh(),
        nn.Linear(width, width),
        nn.Tanh(),
        nn.Linear(width, states),
    )
    model = model.to(device, torch.bfloat16 if device == "cuda" else torch.float32)
    weight = model[0].weight
    return model, torch.randn(batch, states, device=device, dtype=weight.dtype).requires_grad_()


def run(state, steps, repaired):
    model, x = state
    for _ in range(steps):
        y = model(x).sum(0)
        if repaired:
            directions = torch.eye(len(y), device=x.device, dtype=x.dtype)
            (jacobian,) = torch.autograd.grad(y, x, directions, is_grads_batched=True)
        else:
            rows = [torch.autograd.grad(value, x, retain_graph=True)[0] for value in y]
            jacobian = torch.stack(rows)
    return jacobian.float().abs().mean()


main(prepare, run, steps=2)
