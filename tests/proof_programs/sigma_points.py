"""Follows thousands of vehicles by radar with unscented Kalman filters, all at the same time."""

import torch
from common import main

DT = 0.1


def move(s):
    """Constant turn rate and speed: x, y, speed, heading, turn rate."""
    x, y, v, heading, turn = s.unbind(-1)
    return torch.stack(
        [
            x + DT * v * torch.cos(heading),
            y + DT * v * torch.sin(heading),
            v,
            heading + DT * turn,
            turn,
        ],
        -1,
    )


def look(s):
    """What the radar measures: distance and direction, as sine and cosine."""
    x, y = s[..., 0], s[..., 1]
    r = torch.sqrt(x * x + y * y)
    return torch.stack([r, y / r, x / r], -1)


def root(matrices, trusted):
    if trusted:
        return torch.linalg.cholesky_ex(matrices).L
    return torch.linalg.cholesky(matrices)


def solve(a, b, trusted):
    return torch.linalg.solve_ex(a, b).result if trusted else torch.linalg.solve(a, b)


def prepare(device, repaired):
    number = 3072 if device == "cuda" else 4
    mean = torch.rand(number, 5, device=device) * 20 + 30
    mean[:, 3:] = mean[:, 3:] * 0.01
    noise = (
        0.1
        * torch.randn(16, number, 3, device=device)
        * torch.tensor([1, 0.01, 0.01], device=device)
    )
    eye = torch.eye(5, device=device)
    process = torch.diag(torch.tensor([0.05, 0.05, 0.1, 0.01, 0.01], device=device))
    radar = torch.diag(torch.tensor([0.1, 0.002, 0.002], device=device))
    return mean, noise, eye, process, radar


@torch.inference_mode()
def run(state, steps, repaired):
    mean, noise, eye, process, radar = state
    truth, cover = mean + 0.5 * eye[0], eye.expand(len(mean), 5, 5)
    scale = 5.0**0.5
    for step in range(steps):
        truth = move(truth)
        seen = look(truth) + noise[step % len(noise)]
        spread = scale * root(cover, repaired).mT
        points = move(torch.cat([mean[:, None] + spread, mean[:, None] - spread], 1))
        mean = points.mean(1)
        off = points - mean[:, None]
        cover = off.mT @ off / 10 + process
        spread = scale * root(cover, repaired).mT
        off = torch.cat([spread, -spread], 1)
        views = look(mean[:, None] + off)
        view = views.mean(1)
        differ = views - view[:, None]
        s = differ.mT @ differ / 10 + radar
        cross = off.mT @ differ / 10
        gain = solve(s, cross.mT, repaired).mT
        mean = mean + (gain @ (seen - view)[..., None])[..., 0]
        cover = cover - gain @ cross.mT
        cover = (cover + cover.mT) / 2 + 1e-4 * eye
    return (mean - truth)[:, :2].square().mean() + cover.diagonal(dim1=1, dim2=2).mean()


main(prepare, run, steps=350)
