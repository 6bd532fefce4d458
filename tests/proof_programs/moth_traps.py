"""Counts moths in light traps: photographs go through blocks of convolutions, which mark where moths sit."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.filters = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, x):
        y = F.relu(self.norms[0](self.filters[0](x)), inplace=True)
        return F.relu(x + self.norms[1](self.filters[1](y)), inplace=True)


class Marker(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.enter = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.leave = nn.Conv2d(width, 8, 1)

    def forward(self, photos):
        return self.leave(self.blocks(self.enter(photos)))


def prepare(device, repaired):
    cuda = device == "cuda"
    photos, side, width, depth = (32, 512, 64, 6) if cuda else (2, 16, 4, 2)
    dtype = torch.bfloat16 if cuda else torch.float32
    layout = torch.channels_last if repaired else torch.contiguous_format
    torch.manual_seed(37)
    marker = Marker(width, depth).to(device, dtype).eval()
    taken = torch.rand(2, photos, 3, side, side, device=device, dtype=dtype)
    return marker.to(memory_format=layout), [some.to(memory_format=layout) for some in taken]


@torch.inference_mode()
def run(state, steps, repaired):
    marker, taken = state
    total = torch.zeros((), device=taken[0].device)
    for step in range(steps):
        marks = marker(taken[step % 2])
        total += marks.float().square().mean()
    return total / steps


main(prepare, run, steps=150)
