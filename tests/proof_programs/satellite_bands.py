"""Makes pictures of a satellite with dozens of bands smaller: the three directions in which pixels differ most (PCA)."""

import torch
from common import main
from torch import nn


class Directions:
    """Finds directions from the pixels, or from how their bands vary together."""

    def __init__(self, many, small):
        self.many, self.small = many, small

    def __call__(self, pixels):
        if self.small:
            spread, directions = torch.linalg.eigh(pixels.T @ pixels)
            return spread.flip(0)[: self.many].sum() / spread.sum(), directions.flip(1)[
                :, : self.many
            ]
        _, spread, directions = torch.linalg.svd(pixels, full_matrices=False)
        spread = spread.square()
        return spread[: self.many].sum() / spread.sum(), directions[: self.many].T


class Cover(nn.Module):
    def __init__(self, bands, width):
        super().__init__()
        self.first, self.last = nn.Linear(bands, width), nn.Linear(width, 6)

    def forward(self, pixels):
        return self.last(torch.relu(self.first(pixels)))


def prepare(device, repaired):
    pixels, bands, width = (65536, 48, 256) if device == "cuda" else (50, 6, 8)
    mixture = (
        torch.randn(bands, bands, device=device)
        * torch.linspace(3, 0.3, bands, device=device)[:, None]
    )
    scenes = torch.randn(4, pixels, bands, device=device) @ mixture + torch.randn(
        bands, device=device
    )
    return Cover(bands, width).to(device).eval(), Directions(3, small=repaired), scenes


@torch.inference_mode()
def run(state, steps, repaired):
    model, find, scenes = state
    total = torch.zeros((), device=scenes.device)
    for step in range(steps):
        scene = scenes[step % 4]
        share, directions = find(scene - scene.mean(0))
        total += share + (scene @ directions).square().mean() / 100 + model(scene).square().mean()
    return total / steps


main(prepare, run, steps=25)
