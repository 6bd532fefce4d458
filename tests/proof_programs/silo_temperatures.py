"""Follows the warmth of grain in silos, hour by hour, with implicit steps: each solves a dense system of equations."""

import torch
from common import main


class Silo:
    """Warmth at points of a silo; grain far off counts a little, too, through air that moves."""

    def __init__(self, points, device, step=0.2):
        places = torch.rand(points, 3, device=device)
        far = torch.cdist(places, places)
        links = torch.exp(-12 * far) + 0.001 / (1 + far)
        links.fill_diagonal_(0)
        flow = torch.diag(links.sum(1)) - links
        self.matrix = torch.eye(points, device=device) + step * flow
        self.edge = (places - 0.5).abs().amax(1) > 0.45
        self.step = step


class Hours:
    """One implicit step of an hour after the other."""

    def __init__(self, silo, kept):
        self.silo = silo
        self.factors = torch.linalg.lu_factor(silo.matrix) if kept else None

    def solve(self, right):
        if self.factors is None:
            return torch.linalg.solve(self.silo.matrix, right)
        return torch.linalg.lu_solve(*self.factors, right)

    def next(self, warmth, outside):
        heated = warmth + self.silo.step * 0.01 * torch.sigmoid(warmth / 10)
        return self.solve(torch.where(self.silo.edge[:, None], outside, heated))


def weather(hours, silos, device):
    """Degrees (hours, silos) of the air around."""
    hour = torch.arange(hours, device=device)[:, None]
    shift = torch.arange(silos, device=device)[None]
    return 12 + 8 * torch.sin((hour + shift) * (6.2832 / 24))


def prepare(device, repaired):
    points, silos = (3000, 64) if device == "cuda" else (40, 3)
    torch.manual_seed(20)
    silo = Silo(points, device)
    warmth = 20 + torch.randn(points, silos, device=device)
    return Hours(silo, kept=repaired), warmth, weather(48, silos, device)


@torch.inference_mode()
def run(state, steps, repaired):
    hours, warmth, air = state
    total = torch.zeros((), device=warmth.device)
    for hour in range(steps):
        warmth = hours.next(warmth, air[hour % len(air)])
        total += warmth.mean()
    return total / steps


main(prepare, run, steps=60)
