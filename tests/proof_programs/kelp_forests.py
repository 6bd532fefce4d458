"""Learns where kelp grows in pictures from above: a network of residual blocks tells kelp from water, point by point."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(y)))


class Diver(nn.Module):
    def __init__(self, bands, width, depth):
        super().__init__()
        self.begin = nn.Conv2d(bands, width, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.end = nn.Conv2d(width, 1, 1)

    def forward(self, pictures):
        return self.end(self.blocks(F.relu(self.begin(pictures))))


class Trainer:
    """One step of training after the other."""

    def __init__(self, diver, careful):
        self.diver, self.careful = diver, careful
        self.optimizer = torch.optim.SGD(diver.parameters(), lr=1e-3, momentum=0.9)

    def step(self, pictures, kelp):
        with torch.autograd.set_detect_anomaly(self.careful):
            loss = F.binary_cross_entropy_with_logits(self.diver(pictures), kelp)
            self.optimizer.zero_grad()
            loss.backward()
        self.optimizer.step()
        return loss.detach()


def prepare(device, repaired):
    cuda = device == "cuda"
    batch, bands, side, width, depth = (16, 4, 48, 96, 10) if cuda else (2, 3, 6, 4, 2)
    torch.manual_seed(8)
    diver = Diver(bands, width, depth).to(device, memory_format=torch.channels_last)
    pictures = torch.rand(4, batch, side, side, bands, device=device).permute(0, 1, 4, 2, 3)
    kelp = (pictures.mean(2, keepdim=True) > 0.5).float()
    return Trainer(diver, careful=not repaired), pictures, kelp


def run(state, steps, repaired):
    trainer, pictures, kelp = state
    total = torch.zeros((), device=pictures.device)
    for step in range(steps):
        total += trainer.step(pictures[step % 4], kelp[step % 4])
    return total / steps


main(prepare, run, steps=60)
