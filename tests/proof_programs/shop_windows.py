"""Tells styles of shop windows apart: photographs are made smaller and scaled, and a small network looks at them."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Looker(nn.Module):
    def __init__(self, width, styles):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, width, 8, 8), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
            *(nn.Flatten(), nn.Linear(width, styles)),
        )

    def forward(self, photos):
        return self.layers(photos)


class Scaler:
    """Makes photographs (batch, 3, rows, columns) of bytes the input of a network, on one device."""

    def __init__(self, side, device, there):
        self.side, self.device, self.there = side, device, there
        where = device if there else "cpu"
        self.mean = torch.tensor([0.48, 0.46, 0.41], device=where)[:, None, None]
        self.spread = torch.tensor([0.27, 0.26, 0.28], device=where)[:, None, None]

    def __call__(self, photos):
        if self.there:
            photos = photos.to(self.device)
        x = photos.float() / 255
        x = F.interpolate(x, size=(self.side, self.side), mode="bicubic", antialias=True)
        x = (x.clamp(0, 1) - self.mean) / self.spread
        return x.to(self.device)


def prepare(device, repaired):
    photos, side, smaller, width = (32, 512, 224, 64) if device == "cuda" else (2, 40, 16, 4)
    torch.manual_seed(13)
    looker = Looker(width, 10).to(device).eval()
    taken = torch.randint(0, 256, (2, photos, 3, side, side), dtype=torch.uint8)
    return looker, Scaler(smaller, device, there=repaired), taken


@torch.inference_mode()
def run(state, steps, repaired):
    looker, scaler, taken = state
    total = torch.zeros((), device=scaler.device)
    for step in range(steps):
        total += looker(scaler(taken[step % 2])).square().mean()
    return total / steps


main(prepare, run, steps=25)
