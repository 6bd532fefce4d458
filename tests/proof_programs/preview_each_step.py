"""Draws pictures by diffusion in a small space of latents; a decoder makes a picture of them."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    """Two convolutions round which the input goes."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(8 if width > 8 else 1, width)
        self.a, self.b = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)

    def forward(self, x, shift=0):
        return x + self.b(F.silu(self.a(F.silu(self.norm(x))) + shift))


class Denoiser(nn.Module):
    """Guesses the noise in latents at a time."""

    def __init__(self, latents, width, depth):
        super().__init__()
        self.inward, self.out = (
            nn.Conv2d(latents, width, 3, 1, 1),
            nn.Conv2d(width, latents, 3, 1, 1),
        )
        self.time = nn.Linear(1, width)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))

    def forward(self, x, time):
        shift = self.time(x.new_full((1, 1), time))[..., None, None]
        h = self.inward(x)
        for block in self.blocks:
            h = block(h, shift)
        return self.out(h)


class Decoder(nn.Module):
    """Makes a picture eight times as wide and high as the latents."""

    def __init__(self, latents, width):
        super().__init__()
        self.inward, self.out = nn.Conv2d(latents, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(3))

    def forward(self, x):
        h = self.inward(x)
        for block in self.blocks:
            h = block(F.interpolate(h, scale_factor=2))
        return torch.sigmoid(self.out(h))


def prepare(device, repaired):
    size, width, depth, wide = (64, 256, 12, 96) if device == "cuda" else (4, 8, 1, 8)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    denoiser, decoder = Denoiser(4, width, depth), Decoder(4, wide)
    for model in (denoiser, decoder):
        model.to(device, dtype, memory_format=torch.channels_last).eval()
    start = torch.randn(2, 4, size, size, device=device, dtype=dtype)
    return denoiser, decoder, start.to(memory_format=torch.channels_last)


@torch.inference_mode()
def run(state, steps, repaired):
    denoiser, decoder, latents = state
    for step in range(steps):
        noise = denoiser(latents, 1 - step / steps)
        latents = 0.98 * latents - 0.05 * noise
        if not repaired or step == steps - 1:
            picture = decoder(latents)
    return picture.float().mean()


main(prepare, run, steps=90)
