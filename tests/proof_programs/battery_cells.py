"""Learns from measurements of battery cells how much longer they will last, with a small network and small batches."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Training:
    """One update after another, each launched anew or replayed."""

    def __init__(self, model, count, features, device, replayed):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=device == "cuda")
        self.x = torch.zeros(count, features, device=device)
        self.y = torch.zeros(count, 1, device=device)
        self.graph = None
        self.loss = torch.zeros((), device=device)
        if device == "cuda":
            self.warm_up()
        if replayed and device == "cuda":
            self.graph = torch.cuda.CUDAGraph()
            self.optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(self.graph):
                self.loss = self.update()

    def warm_up(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.optimizer.zero_grad(set_to_none=True)
                self.update()
        torch.cuda.current_stream().wait_stream(side)

    def update(self):
        loss = F.smooth_l1_loss(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def __call__(self, x, y):
        self.x.copy_(x)
        self.y.copy_(y)
        if self.graph is not None:
            self.graph.replay()
            return self.loss
        self.optimizer.zero_grad(set_to_none=True)
        return self.update()


def prepare(device, repaired):
    count, features, width = (256, 48, 128) if device == "cuda" else (4, 5, 6)
    layers = [nn.Linear(features, width), nn.SiLU()]
    for _ in range(4):
        layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 1)).to(device)
    x = torch.randn(32, count, features, device=device)
    y = x[..., :3].square().mean(-1, keepdim=True) + x[..., 3:4].sin()
    return Training(model, count, features, device, replayed=repaired), x, y


def run(state, steps, repaired):
    train, x, y = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        total += train(x[step % 32], y[step % 32])
    return total / steps


main(prepare, run, steps=1000)
