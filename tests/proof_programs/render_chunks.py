"""Renders views of a scene that a small network has learnt (a radiance field), ray by ray in chunks."""

import math

import torch
from common import main
from torch import nn

SAMPLES, WAVES = 48, 6


class Field(nn.Module):
    """Density and colour at a place; places are told as waves of several lengths."""

    def __init__(self, width, depth):
        super().__init__()
        layers = [nn.Linear(6 * WAVES, width), nn.ReLU()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.trunk = nn.Sequential(*layers)
        self.out = nn.Linear(width, 4)

    def forward(self, places):
        scales = 2.0 ** torch.arange(WAVES, device=places.device)
        waves = (places[..., None] * scales).flatten(-2)
        waves = torch.cat([waves.sin(), waves.cos()], -1)
        return self.out(self.trunk(waves.to(self.out.weight.dtype))).float()


def shade(field, origins, directions):
    """Return the colours of rays: what lies before hides what lies behind."""
    depth = torch.linspace(1, 4, SAMPLES, device=origins.device)
    places = origins[:, None] + directions[:, None] * depth[:, None]
    out = field(places)
    covered = 1 - torch.exp(-torch.relu(out[..., 3]) * 3 / SAMPLES)
    clear = torch.cumprod(1 - covered + 1e-6, -1)
    weight = covered * torch.cat([torch.ones_like(clear[:, :1]), clear[:, :-1]], -1)
    return (weight[..., None] * out[..., :3].sigmoid()).sum(1)


def prepare(device, repaired):
    size, width, depth = (300, 128, 4) if device == "cuda" else (8, 8, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    field = Field(width, depth).to(device, dtype).eval()
    line = torch.linspace(-0.5, 0.5, size, device=device)
    y, x = torch.meshgrid(line, line, indexing="ij")
    rays = torch.stack([x, y, torch.ones_like(x)], -1).flatten(0, 1)
    rays = rays / rays.norm(dim=-1, keepdim=True)
    chunk = 32 if device == "cpu" else 32768 if repaired else 1024
    return field, rays, chunk


@torch.inference_mode()
def run(state, steps, repaired):
    field, rays, chunk = state
    total = 0
    for step in range(steps):
        angle = step * math.pi / 20
        cos, sin = math.cos(angle), math.sin(angle)
        turned = torch.stack(
            [cos * rays[:, 0] + sin * rays[:, 2], rays[:, 1], cos * rays[:, 2] - sin * rays[:, 0]],
            -1,
        )
        origins = torch.zeros_like(turned)
        picture = []
        for start in range(0, len(rays), chunk):
            picture.append(
                shade(field, origins[start : start + chunk], turned[start : start + chunk])
            )
        total = total + torch.cat(picture).mean()
    return total / steps


main(prepare, run, steps=8, warm=1)
