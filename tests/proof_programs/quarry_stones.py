"""Grades stones of a quarry from pictures that become half as wide and high at each stage of a network."""

import torch
from common import main
from torch import nn


class Stage(nn.Module):
    """Drops every other row and column after its convolution, or does not compute them."""

    def __init__(self, ins, outs, skip):
        super().__init__()
        self.skip = skip
        self.filter = nn.Conv2d(ins, outs, 3, stride=2 if skip else 1, padding=1)

    def forward(self, x):
        y = torch.relu_(self.filter(x))
        return y if self.skip else y[:, :, ::2, ::2]


class Stones(nn.Module):
    def __init__(self, widths, grades, skip):
        super().__init__()
        self.first = nn.Conv2d(3, widths[0], 3, padding=1)
        self.stages = nn.Sequential(
            *(Stage(*pair, skip) for pair in zip(widths, widths[1:], strict=False))
        )
        self.last = nn.Linear(widths[-1], grades)

    def forward(self, pictures):
        return self.last(self.stages(self.first(pictures)).mean((2, 3)))


def prepare(device, repaired):
    widths, batch, side = ((64, 128, 256, 512), 32, 192) if device == "cuda" else ((4, 8), 2, 8)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    form = {"device": device, "dtype": dtype, "memory_format": torch.channels_last}
    model = Stones(widths, 7, skip=repaired).to(**form).eval()
    pictures = [torch.randn(batch, 3, side, side).to(**form) for _ in range(2)]
    return model, pictures


@torch.inference_mode()
def run(state, steps, repaired):
    model, pictures = state
    total = torch.zeros((), device=pictures[0].device)
    for step in range(steps):
        total += model(pictures[step % 2]).float().square().mean()
    return total / steps


main(prepare, run, steps=600)
