"""Flies many kites in gusts of wind and keeps where each of them was, moment by moment, to see how far they got."""

import torch
from common import main


class Track:
    """Places (moments, kites, 3) so far; `moments` is how many there will be, or None."""

    def __init__(self, places, moments):
        self.count, self.moments = 1, moments
        if moments is None:
            self.kept = places[None].clone()
        else:
            self.kept = torch.empty(moments + 1, *places.shape, device=places.device)
            self.kept[0] = places

    def add(self, places):
        if self.moments is None:
            self.kept = torch.cat((self.kept, places[None]))
        else:
            self.kept[self.count] = places
        self.count += 1

    def way(self):
        first, last = self.kept[0], self.kept[self.count - 1]
        return (last - first).norm(dim=1).mean() + self.kept[self.count // 2].abs().mean()


class Wind:
    def __init__(self, device):
        self.mean = torch.tensor([1.0, 0.2, 0.1], device=device)

    def blow(self, places, speeds, moment):
        gust = torch.sin(places.roll(1, 1) + 0.05 * moment)
        speeds = speeds + 0.02 * (self.mean + gust - speeds - 0.1 * places)
        return places + 0.05 * speeds, speeds


def prepare(device, repaired):
    kites = 100_000 if device == "cuda" else 20
    torch.manual_seed(14)
    return torch.randn(kites, 3, device=device), Wind(device)


@torch.no_grad()
def run(state, steps, repaired):
    places, wind = state
    speeds, track = torch.zeros_like(places), Track(places, steps if repaired else None)
    for moment in range(steps):
        places, speeds = wind.blow(places, speeds, moment)
        track.add(places)
    return track.way()


main(prepare, run, steps=1000, small=5)
