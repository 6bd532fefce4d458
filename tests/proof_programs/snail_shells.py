"""Draws shells of snails from a book of kinds: each shell is a mixture of all kinds, the more of one the nearer it is."""

import torch
from common import main


def apart_by_gaps(shells, kinds):
    """Squares of distances of shells (count, traits) to kinds (kinds, traits)."""
    gaps = shells[:, None] - kinds[None]
    return gaps.square().sum(2)


def apart_by_products(shells, kinds):
    """The same, by the square of a difference written out."""
    far, near = shells.square().sum(1, keepdim=True), kinds.square().sum(1)
    return torch.addmm(near, shells, kinds.T, alpha=-2).add_(far).clamp_(min=0)


class Drawer:
    def __init__(self, apart, width):
        self.apart, self.width = apart, width

    def draw(self, shells, kinds):
        shares = torch.softmax(self.apart(shells, kinds) * (-1 / self.width), 1)
        return shares @ kinds


def prepare(device, repaired):
    cuda = device == "cuda"
    count, kinds, traits = (16384, 1024, 16) if cuda else (24, 6, 4)
    torch.manual_seed(32)
    shells = torch.randn(4, count, traits, device=device)
    middles = torch.randn(2, kinds, traits, device=device)
    return Drawer(apart_by_products if repaired else apart_by_gaps, width=8.0), shells, middles


@torch.inference_mode()
def run(state, steps, repaired):
    drawer, shells, middles = state
    total = torch.zeros((), device=shells.device)
    for step in range(steps):
        total += drawer.draw(shells[step % 4], middles[step % 2]).square().mean()
    return total / steps


main(prepare, run, steps=500)
