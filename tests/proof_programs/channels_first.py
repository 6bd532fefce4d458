"""Half-precision inference of a residual convolution network on NCHW tensors."""

import torch
from common import main
from torch import nn


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.b(torch.relu(self.a(x))))


def prepare(device, repaired):
    c, size, batch = (128, 56, 128) if device == "cuda" else (4, 8, 2)
    dtype = torch.float16 if device == "cuda" else torch.float32
    model = nn.Sequential(*[Residual(c) for _ in range(6)]).to(device, dtype)
    x = torch.randn(batch, c, size, size, device=device, dtype=dtype)
    if repaired:
        model, x = (
            model.to(memory_format=torch.channels_last),
            x.to(memory_format=torch.channels_last),
        )
    return model, x


@torch.no_grad()
def run(state, steps, repaired):
    model, x = state
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        total += model(x).float().mean()
    return total


main(prepare, run, steps=30)
