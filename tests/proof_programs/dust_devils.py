"""Lets grains of dust whirl in a box: those that leave come in again on the other side, those on the floor lie still."""

import torch
from common import main


class Whirl:
    def __init__(self, by_choice, height):
        self.by_choice, self.height = by_choice, height

    def blow(self, places, speeds, step):
        x, y = places[:, 0], places[:, 1]
        pull = torch.stack((-y, x, 0.3 * torch.cos(x + 0.1 * step)), 1)
        speeds += 0.02 * (pull - 0.5 * speeds)
        places += 0.05 * speeds

    def bound(self, places, speeds):
        """Keep grains in the box of the height, in place."""
        for axis in range(2):
            along = places[:, axis]
            if self.by_choice:
                along.copy_(torch.where(along > 4, along - 8, along))
                along.copy_(torch.where(along < -4, along + 8, along))
            else:
                along[along > 4] -= 8
                along[along < -4] += 8
        up = places[:, 2]
        if self.by_choice:
            fallen = (up < 0)[:, None]
            speeds.copy_(torch.where(fallen, 0.0, speeds))
            up.clamp_(0, self.height)
        else:
            speeds[up < 0] = 0.0
            up[up < 0] = 0.0
            up[up > self.height] = self.height


def prepare(device, repaired):
    grains = 100_000 if device == "cuda" else 50
    torch.manual_seed(9)
    places = torch.rand(grains, 3, device=device) * 8 - 4
    return Whirl(by_choice=repaired, height=4.0), places, torch.randn(grains, 3, device=device)


@torch.no_grad()
def run(state, steps, repaired):
    whirl, places, speeds = state[0], state[1].clone(), state[2].clone()
    for step in range(steps):
        whirl.blow(places, speeds, step)
        whirl.bound(places, speeds)
    return places.abs().mean() + speeds.abs().mean()


main(prepare, run, steps=800)
