"""Estimates how dense a cloud of stars is at many places: a sum of bells over all stars, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def bells(
    places, stars, weights, density, number, width,
    PLACES: tl.constexpr, STARS: tl.constexpr,
):  # fmt: skip
    mine = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    px = tl.load(places + 3 * mine)[:, None]
    py = tl.load(places + 3 * mine + 1)[:, None]
    pz = tl.load(places + 3 * mine + 2)[:, None]
    total = tl.zeros((PLACES,), tl.float32)
    for start in range(0, number, STARS):
        at = start + tl.arange(0, STARS)
        x = tl.load(stars + at)[None, :] - px
        y = tl.load(stars + number + at)[None, :] - py
        z = tl.load(stars + 2 * number + at)[None, :] - pz
        weight = tl.load(weights + at)[None, :]
        total += tl.sum(weight * tl.exp2(-width * (x * x + y * y + z * z)), axis=1)
    tl.store(density + mine, total)


class Cloud:
    """Stars (all x, then all y, then all z) with weights."""

    def __init__(self, count, device):
        self.stars = torch.randn(3, count, device=device)
        self.weights = torch.rand(count, device=device)

    def density(self, places, width, group):
        """Return the density at each place; a program has `group` of them."""
        found = torch.empty(len(places), device=places.device)
        count = self.stars.shape[1]
        tile = min(2048 // group, count)
        grid = (len(places) // group,)
        bells[grid](places, self.stars, self.weights, found, count, width, PLACES=group, STARS=tile)
        return found


def prepare(device, repaired):
    stars, places = (1 << 15, 1 << 15) if device == "cuda" else (256, 64)
    cloud = Cloud(stars, device)
    return cloud, torch.randn(2, places, 3, device=device)


def run(state, steps, repaired):
    cloud, places = state
    total = torch.zeros((), device=places.device)
    for step in range(steps):
        width = 4.0 + step % 8
        density = cloud.density(places[step % 2], width, group=16 if repaired else 1)
        total += density.mean()
    return total / steps


main(prepare, run, steps=600)
