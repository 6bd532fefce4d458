"""Solves Burgers' equation with a network (physics-informed): it learns from how far it is from the equation."""

import math

import torch
from common import main
from torch import nn


def derive(value, *places):
    return torch.autograd.grad(value.sum(), places, create_graph=True)


def prepare(device, repaired):
    points, width, depth = (1 << 17, 64, 5) if device == "cuda" else (16, 8, 2)
    layers = [nn.Linear(2, width), nn.Tanh()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.Tanh()]
    net = nn.Sequential(*layers, nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), fused=True if device == "cuda" else None)
    x = (2 * torch.rand(points, 1, device=device) - 1).requires_grad_()
    t = torch.rand(points, 1, device=device).requires_grad_()
    return net, optimizer, x, t


def run(state, steps, repaired):
    net, optimizer, x, t = state
    some = x[:1024].detach()
    for _ in range(steps):
        u = net(torch.cat([x, t], 1))
        if repaired:
            u_x, u_t = derive(u, x, t)
        else:
            (u_t,) = derive(u, t)
            (u_x,) = derive(u, x)
        (u_xx,) = derive(u_x, x)
        equation = u_t + u * u_x - 0.01 / math.pi * u_xx
        begin = net(torch.cat([some, torch.zeros_like(some)], 1)) + torch.sin(math.pi * some)
        loss = equation.square().mean() + begin.square().mean()
        optimizer.zero_grad()
        loss.backward(inputs=list(net.parameters()))
        optimizer.step()
    return loss.detach()


main(prepare, run, steps=80)
