"""Decodes a film of a harvest from its codes, part by part, as a whole frame would be too large."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv(F.silu(self.norm(x)))


class Decoder(nn.Module):
    """From codes to pixels, eight times as wide and as high."""

    def __init__(self, codes, channels):
        super().__init__()
        self.first = nn.Conv2d(codes, channels, 3, padding=1)
        self.stages = nn.ModuleList(Residual(channels) for _ in range(4))
        self.last = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, x):
        x = self.first(x)
        for at, stage in enumerate(self.stages):
            x = stage(x)
            if at < 3:
                x = F.interpolate(x, scale_factor=2, mode="nearest")
        return self.last(x).clamp(-1, 1)


class TiledDecoder:
    def __init__(self, decoder, tile, release):
        self.decoder, self.tile, self.release = decoder, tile, release

    def __call__(self, codes):
        """Return a frame, (1, 3, 8 * height, 8 * width), of codes (1, codes, height, width)."""
        height, width = codes.shape[-2:]
        frame = codes.new_empty(1, 3, 8 * height, 8 * width)
        for top in range(0, height, self.tile):
            for left in range(0, width, self.tile):
                part = codes[..., top : top + self.tile, left : left + self.tile]
                pixels = self.decoder(part)
                rows, columns = pixels.shape[-2:]
                frame[..., 8 * top : 8 * top + rows, 8 * left : 8 * left + columns] = pixels
                if self.release:
                    torch.cuda.empty_cache()
        return frame


def prepare(device, repaired):
    cuda = device == "cuda"
    height, width, codes, channels, tile = (128, 192, 16, 64, 64) if cuda else (8, 8, 4, 8, 4)
    dtype = torch.bfloat16 if cuda else torch.float32
    decoder = Decoder(codes, channels).to(device, dtype).eval()
    film = torch.randn(4, 1, codes, height, width, device=device, dtype=dtype)
    return TiledDecoder(decoder, tile, release=not repaired), film


@torch.inference_mode()
def run(state, steps, repaired):
    decode, film = state
    total = torch.zeros((), device=film.device)
    for step in range(steps):
        frame = decode(film[step % len(film)])
        total += frame.float().abs().mean()
    return total / steps


main(prepare, run, steps=40)
