"""Marks tissue in slides of a microscope, tile by tile; the masks are compressed as they will be stored."""

import zlib
from concurrent.futures import ThreadPoolExecutor

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Marker(nn.Module):
    """Convolutions at half the resolution; the kind of tissue of each spot."""

    def __init__(self, width, depth, kinds):
        super().__init__()
        self.first = nn.Conv2d(3, width, 4, 4)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.last = nn.Conv2d(width, kinds, 1)

    def forward(self, tiles):
        x = F.relu(self.first(tiles))
        for layer in self.layers:
            x = x + F.relu(layer(x))
        kinds = self.last(F.avg_pool2d(x, 4)).argmax(1, keepdim=True)
        return F.interpolate(kinds.to(torch.uint8), scale_factor=16, mode="nearest")[:, 0]


class Store:
    """Keeps masks compressed; `pool`, if there is one, does so beside the loop."""

    def __init__(self, pool):
        self.pool, self.pieces = pool, []

    def add(self, mask):
        if self.pool is None:
            self.pieces.append(zlib.compress(mask.numpy(), 3))
        else:
            self.pieces.append(self.pool.submit(zlib.compress, mask.numpy(), 3))

    def size(self):
        """Return how many bytes all masks have, once they are there."""
        pieces = self.pieces if self.pool is None else [piece.result() for piece in self.pieces]
        self.pieces = []
        return sum(len(piece) for piece in pieces)


def prepare(device, repaired):
    batch, side, width, depth = (4, 1024, 128, 56) if device == "cuda" else (2, 64, 4, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    marker = Marker(width, depth, 6).to(device, dtype, memory_format=torch.channels_last).eval()
    coarse = torch.rand(3, batch, 3, side // 32, side // 32, device=device)
    slides = [F.interpolate(tiles, (side, side), mode="bilinear").to(dtype) for tiles in coarse]
    slides = [tiles.contiguous(memory_format=torch.channels_last) for tiles in slides]
    store = Store(ThreadPoolExecutor(8) if repaired else None)
    return marker, store, slides


@torch.inference_mode()
def run(state, steps, repaired):
    marker, store, slides = state
    marked = 0
    for step in range(steps):
        masks = marker(slides[step % len(slides)]).cpu()
        for mask in masks:
            store.add(mask)
        marked += int(masks[:, ::64, ::64].sum())
    return store.size() / steps + marked / steps


main(prepare, run, steps=60)
