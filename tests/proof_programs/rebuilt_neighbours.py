"""Moves soft spheres that push each other away (dissipative particles); only near ones are looked at."""

import torch
from common import main

REACH, NEAR, STEP = 1.0, 64, 0.004


def nearest(place):
    """Return, for each sphere, those that lie nearest."""
    distance = torch.cdist(place, place, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.topk(NEAR, largest=False).indices[:, 1:]


def push(place, speed, near):
    apart = place[:, None] - place[near]
    distance = apart.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    soft = (1 - distance / REACH).clamp(min=0)
    relative = ((speed[:, None] - speed[near]) * apart).sum(-1, keepdim=True) / distance
    return ((25 * soft - 4.5 * soft.square() * relative) * apart / distance).sum(1)


def prepare(device, repaired):
    number, side = (12288, 16.0) if device == "cuda" else (100, 4.0)
    place = torch.rand(number, 3, device=device) * side
    return place, torch.randn(number, 3, device=device), side


@torch.inference_mode()
def run(state, steps, repaired):
    place, speed, side = state
    for step in range(steps):
        if not repaired or step % 10 == 0:
            near = nearest(place)
        outside = (place - side).clamp(min=0) + place.clamp(max=0)
        speed = speed + STEP * (push(place, speed, near) - 50 * outside)
        place = place + STEP * speed
    return speed.square().mean() + place.mean()


main(prepare, run, steps=40, warm=2)
