"""Learns to paint portraits of cats: a painter against a judge who tells painted ones from photographs."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Painter(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.width = width
        self.first = nn.Linear(64, width * 64)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, ideas):
        x = self.first(ideas).view(-1, self.width, 8, 8)
        for at, layer in enumerate(self.layers):
            if at in (1, 2, 3):
                x = F.interpolate(x, scale_factor=2)
            x = x + F.leaky_relu(layer(x), 0.2)
        return torch.tanh(self.last(x))


class Judge(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 2 * width, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
        )  # fmt: skip
        self.last = nn.Linear(2 * width, 1)

    def forward(self, pictures):
        return self.last(self.layers(pictures).mean((2, 3)))


class Lessons:
    def __init__(self, painter, judge, apart):
        self.painter, self.judge, self.apart = painter, judge, apart
        self.painting = torch.optim.SGD(painter.parameters(), lr=1e-4)
        self.judging = torch.optim.SGD(judge.parameters(), lr=1e-4)

    def teach_judge(self, photos, ideas):
        self.judging.zero_grad()
        with torch.set_grad_enabled(not self.apart):
            painted = self.painter(ideas)
        loss = F.softplus(-self.judge(photos)).mean() + F.softplus(self.judge(painted)).mean()
        loss.backward()
        self.judging.step()
        return loss.detach()

    def teach_painter(self, ideas):
        self.painting.zero_grad()
        loss = F.softplus(-self.judge(self.painter(ideas))).mean()
        loss.backward()
        self.painting.step()
        return loss.detach()


def prepare(device, repaired):
    count, width, depth = (64, 96, 7) if device == "cuda" else (2, 4, 4)
    painter, judge = Painter(width, depth).to(device), Judge(width // 2).to(device)
    photos = torch.rand(4, count, 3, 64, 64, device=device) * 2 - 1
    ideas = torch.randn(8, count, 64, device=device)
    return Lessons(painter, judge, apart=repaired), photos, ideas


def run(state, steps, repaired):
    lessons, photos, ideas = state
    total = torch.zeros((), device=photos.device)
    for step in range(steps):
        total += lessons.teach_judge(photos[step % 4], ideas[step % 8])
        total += lessons.teach_painter(ideas[(step + 3) % 8])
    return total / steps


main(prepare, run, steps=120)
