"""Looks at videos of drones: patches of two pictures each become vectors, which go through some blocks of a transformer's kind."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Patches(nn.Module):
    """Makes a vector of each patch: a convolution whose kernel is as large as the patch, or the same as a product."""

    def __init__(self, width, frames, side, flat):
        super().__init__()
        self.shape, self.flat = (3, frames, side, side), flat
        self.project = nn.Conv3d(3, width, self.shape[1:], self.shape[1:], bias=False)

    def forward(self, patches):
        if self.flat:
            return F.linear(patches, self.project.weight.flatten(1))
        return self.project(patches.view(-1, *self.shape)).flatten(1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def prepare(device, repaired):
    count, width, frames, side, depth = (
        (16384, 1280, 2, 14, 1) if device == "cuda" else (6, 16, 2, 4, 1)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = nn.Sequential(
        Patches(width, frames, side, flat=repaired), *(Block(width) for _ in range(depth))
    )
    clips = torch.rand(3, count, 3 * frames * side * side, device=device, dtype=dtype)
    return model.to(device, dtype).eval(), clips


@torch.inference_mode()
def run(state, steps, repaired):
    model, clips = state
    total = torch.zeros((), device=clips.device)
    for step in range(steps):
        total += model(clips[step % 3]).float().square().mean()
    return total / steps


main(prepare, run, steps=300)
