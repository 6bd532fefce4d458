"""Finds where a bridge bears most under lorries: the principal stresses of all its pieces, at each moment."""

import math

import torch
from common import main


def stresses(moved, slopes):
    """Return the six stresses of each piece from how its corners moved."""
    bent = (moved[:, :, :, None] * slopes[:, :, None, :]).sum(1)
    strain = 0.5 * (bent + bent.transpose(1, 2))
    volume = strain[:, 0, 0] + strain[:, 1, 1] + strain[:, 2, 2]
    direct = [2 * strain[:, k, k] + 1.5 * volume for k in range(3)]
    return (*direct, 2 * strain[:, 0, 1], 2 * strain[:, 0, 2], 2 * strain[:, 1, 2])


def by_library(moved, slopes):
    xx, yy, zz, xy, xz, yz = stresses(moved, slopes)
    tensor = torch.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz], 1).view(-1, 3, 3)
    found = torch.linalg.eigvalsh(tensor)
    return found[:, 2].mean(), (found[:, 2] - found[:, 0]).mean()


def by_formula(moved, slopes):
    xx, yy, zz, xy, xz, yz = stresses(moved, slopes)
    middle = (xx + yy + zz) / 3
    a, b, c = xx - middle, yy - middle, zz - middle
    aside = xy * xy + xz * xz + yz * yz
    size = torch.sqrt((a * a + b * b + c * c + 2 * aside) / 6)
    product = a * (b * c - yz * yz) - xy * (xy * c - yz * xz) + xz * (xy * yz - b * xz)
    angle = torch.acos((product / (2 * size**3)).clamp(-1, 1)) / 3
    most = middle + 2 * size * torch.cos(angle)
    least = middle + 2 * size * torch.cos(angle + 2 * math.pi / 3)
    return most.mean(), (most - least).mean()


def prepare(device, repaired):
    pieces = 1 << 19 if device == "cuda" else 50
    find = by_formula if repaired else by_library
    if device == "cuda" and repaired:
        find = torch.compile(find, dynamic=False)
    moved = torch.randn(4, pieces, 8, 3, device=device)
    return find, moved, torch.randn(pieces, 8, 3, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    find, moved, slopes = state
    total = torch.zeros((), device=slopes.device)
    for step in range(steps):
        most, between = find(moved[step % 4], slopes)
        total += most + 0.5 * between
    return total / steps


main(prepare, run, steps=12)
