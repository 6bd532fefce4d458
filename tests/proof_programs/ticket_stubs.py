"""Reads numbers on stubs of tickets: a network gives a digit or nothing for each place along a stub, runs of which are merged."""

import torch
from common import main
from torch import nn


class Reader(nn.Module):
    """Scores (stubs, places, digits and nothing) of pictures (stubs, 1, high, wide)."""

    def __init__(self, width, digits):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d((1, 2))),
        )
        self.head = nn.Linear(2 * width, digits + 1)

    def forward(self, stubs):
        return self.head(self.layers(stubs).mean(2).transpose(1, 2))


def merge(found):
    """Numbers, as lists of digits, of the surest digit (or 0 for nothing) at each place."""
    numbers = []
    for stub in found:
        number, last = [], 0
        for place in stub:
            digit = int(place)
            if digit and digit != last:
                number.append(digit - 1)
            last = digit
        numbers.append(number)
    return numbers


def prepare(device, repaired):
    cuda = device == "cuda"
    stubs, high, wide, width, digits = (48, 32, 160, 64, 10) if cuda else (3, 8, 24, 4, 5)
    torch.manual_seed(11)
    reader = Reader(width, digits).to(device, memory_format=torch.channels_last).eval()
    pictures = torch.rand(3, stubs, 1, high, wide, device=device)
    return reader, pictures


@torch.inference_mode()
def run(state, steps, repaired):
    reader, pictures = state
    total = 0.0
    for step in range(steps):
        found = reader(pictures[step % 3]).argmax(2)
        numbers = merge(found.tolist() if repaired else found)
        total += sum(len(number) + 0.01 * sum(number) for number in numbers)
    return total / steps


main(prepare, run, steps=45)
