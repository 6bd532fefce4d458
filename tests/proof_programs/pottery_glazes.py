"""Learns how glazes turn out: a network foretells the picture of a fired pot from that of the glazed one."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Kiln(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.fires = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, pots):
        x = self.enter(pots)
        for fire in self.fires:
            x = x + 0.3 * F.silu(fire(x))
        return self.leave(x)


class Workshop:
    """Teaches a kiln, pot by pot."""

    def __init__(self, kiln, tidy):
        self.kiln, self.tidy = kiln, tidy
        self.optimizer = torch.optim.SGD(kiln.parameters(), lr=1e-3, momentum=0.9)

    def learn(self, glazed, fired):
        loss = F.mse_loss(self.kiln(glazed), fired)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.tidy:
            torch.cuda.empty_cache()
        return loss.detach().float()


def prepare(device, repaired):
    cuda = device == "cuda"
    pots, side, width, depth = (24, 128, 64, 8) if cuda else (2, 6, 4, 2)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(38)
    kiln = Kiln(width, depth).to(device, dtype, memory_format=torch.channels_last)
    glazed = torch.rand(pots, 3, side, side, device=device, dtype=dtype)
    glazed = glazed.contiguous(memory_format=torch.channels_last)
    return Workshop(kiln, tidy=not repaired), glazed, glazed.flip(3) * 0.5


def run(state, steps, repaired):
    workshop, glazed, fired = state
    total = torch.zeros((), device=glazed.device)
    for _ in range(steps):
        total += workshop.learn(glazed, fired)
    return total / steps


main(prepare, run, steps=60)
