"""Makes photographs look as if taken with a wide lens: what lies far away is blurred with a Gaussian, what is near stays sharp."""

import torch
from common import main
from torch.nn import functional as F

RADIUS = 15


def prepare(device, repaired):
    number, height, width = (6, 1080, 1920) if device == "cuda" else (1, 40, 60)
    line = torch.arange(-RADIUS, RADIUS + 1, device=device).float()
    bell = torch.exp(-line.square() / (2 * 5.0**2))
    photographs = torch.rand(number, 3, height, width, device=device)
    depth = torch.rand(number, 1, height // 20, width // 20, device=device)
    return photographs, F.interpolate(depth, (height, width), mode="bilinear"), bell / bell.sum()


def blur(photographs, bell, separate):
    if separate:
        across = bell.expand(3, 1, 1, -1)
        x = F.conv2d(photographs, across, padding=(0, RADIUS), groups=3)
        return F.conv2d(x, across.transpose(2, 3), padding=(RADIUS, 0), groups=3)
    square = (bell[:, None] * bell[None, :]).expand(3, 1, -1, -1)
    return F.conv2d(photographs, square, padding=RADIUS, groups=3)


@torch.inference_mode()
def run(state, steps, repaired):
    photographs, depth, bell = state
    total = 0
    for step in range(steps):
        far = ((depth - 0.1 * (step % 5)) * 4).clamp(0, 1)
        picture = photographs + far * (blur(photographs, bell, repaired) - photographs)
        total = total + picture[:, :, ::7].square().mean()
    return total / steps


main(prepare, run, steps=30)
