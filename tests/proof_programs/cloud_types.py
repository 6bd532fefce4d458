"""Tells clouds apart in pictures whose channels are scaled and shifted for the time of day and the season (FiLM)."""

import torch
from common import main
from torch import nn


class Scaled(nn.Module):
    """Scales and shifts channels by numbers that are repeated for each pixel, or broadcast."""

    def __init__(self, width, facts, repeat):
        super().__init__()
        self.width, self.repeat = width, repeat
        self.make = nn.Linear(facts, 2 * width)

    def forward(self, x, facts):
        scale, shift = self.make(facts)[:, :, None, None].split(self.width, 1)
        if self.repeat:
            scale = scale.repeat(1, 1, *x.shape[2:])
            shift = shift.repeat(1, 1, *x.shape[2:])
        return torch.relu_(torch.addcmul(shift, x, 1 + scale))


class Clouds(nn.Module):
    def __init__(self, width, depth, facts, repeat):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.scaled = nn.ModuleList(Scaled(width, facts, repeat) for _ in range(depth))
        self.last = nn.Linear(width, 10)

    def forward(self, pictures, facts):
        x = self.first(pictures)
        for layer in self.scaled:
            x = layer(x, facts)
        return self.last(x.mean((2, 3)))


def prepare(device, repaired):
    width, depth, facts, batch, side = (96, 6, 8, 64, 96) if device == "cuda" else (4, 2, 3, 2, 8)
    model = Clouds(width, depth, facts, repeat=not repaired).to(device).eval()
    pictures = torch.randn(2, batch, 3, side, side, device=device)
    return model, pictures, torch.rand(2, batch, facts, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, pictures, facts = state
    total = torch.zeros((), device=pictures.device)
    for step in range(steps):
        total += model(pictures[step % 2], facts[step % 2]).square().mean()
    return total / steps


main(prepare, run, steps=400)
