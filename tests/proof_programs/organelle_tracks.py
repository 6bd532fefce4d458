"""Follows organelles from one frame of a microscope to the next: each may go to what is near and looks alike."""

import torch
from common import main


class Near:
    """Distances of all organelles of a frame (N, 3) from all of the frame before (M, 3), where within reach."""

    def __init__(self, reach, expand):
        self.reach, self.expand = reach, expand

    def distances(self, after, before):
        if self.expand:
            squares = (after * after).sum(1)[:, None] + (before * before).sum(1)[None, :]
            return torch.addmm(squares, after, before.T, alpha=-2).clamp_(min=0).sqrt_()
        apart = after[:, None, :] - before[None, :, :]
        return torch.sqrt((apart**2).sum(2))

    def __call__(self, after, before):
        d = self.distances(after, before)
        return torch.where(d < self.reach, d, self.reach)


def prepare(device, repaired):
    count = 8192 if device == "cuda" else 40
    frames = 40 * torch.rand(4, count, 3, device=device)
    looks = torch.rand(4, count, device=device)
    return Near(4.0, expand=repaired), frames, looks


@torch.no_grad()
def run(state, steps, repaired):
    near, frames, looks = state
    total = torch.zeros((), device=frames.device)
    for step in range(steps):
        here, there = step % 4, (step + 1) % 4
        cost = near(frames[there], frames[here])
        cost += (looks[there][:, None] - looks[here][None, :]).abs()
        total += cost.amin(1).mean()
    return total / steps


main(prepare, run, steps=1000)
