"""Tells trunks, leaves and ground apart in points of a forest, and writes down how long each piece of a step took."""

import time

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Points(nn.Module):
    def __init__(self, width, depth, kinds):
        super().__init__()
        self.first, self.last = nn.Linear(3, width), nn.Linear(2 * width, kinds)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def forward(self, points):
        """Scores of kinds for clouds of points (clouds, points, 3)."""
        x = self.first(points)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + F.relu(layer(norm(x)))
        return self.last(torch.cat((x, x.amax(1, keepdim=True).expand_as(x)), 2))


class Watch:
    """Seconds by name since the last call."""

    def __init__(self, waits):
        self.waits, self.seconds, self.last = waits, {}, time.perf_counter()

    def lap(self, name):
        if self.waits:
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
        self.last = now


def prepare(device, repaired):
    cuda = device == "cuda"
    clouds, points, width, depth, kinds = (8, 1024, 128, 10, 4) if cuda else (2, 9, 8, 2, 3)
    torch.manual_seed(18)
    net = Points(width, depth, kinds).to(device)
    cloud = torch.randn(4, clouds, points, 3, device=device)
    kind = (cloud[..., 2] > 0).long()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    return net, optimizer, cloud, kind, cuda and not repaired


def run(state, steps, repaired):
    net, optimizer, cloud, kind, waits = state
    watch = Watch(waits)
    total = torch.zeros((), device=cloud.device)
    for step in range(steps):
        optimizer.zero_grad()
        scores = net(cloud[step % 4])
        watch.lap("forward")
        loss = F.cross_entropy(scores.flatten(0, 1), kind[step % 4].flatten())
        watch.lap("loss")
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        watch.lap("step")
        total += loss.detach()
    return total / steps


main(prepare, run, steps=200)
