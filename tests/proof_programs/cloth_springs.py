"""Simulates cloth as points and springs: the force of each spring is added to the two points it joins."""

import torch
from common import main


class Cloth:
    """A square of points; springs to the neighbours, and across."""

    def __init__(self, side, device):
        grid = torch.arange(side * side, device=device).view(side, side)
        pairs = [
            (grid[:, :-1], grid[:, 1:]), (grid[:-1], grid[1:]),
            (grid[:-1, :-1], grid[1:, 1:]), (grid[:-1, 1:], grid[1:, :-1]),
        ]  # fmt: skip
        self.start = torch.cat([a.flatten() for a, _ in pairs])
        self.end = torch.cat([b.flatten() for _, b in pairs])
        order = torch.randperm(len(self.start), device=device)
        self.start, self.end = self.start[order], self.end[order]
        spots = torch.stack([grid % side, grid // side, 0 * grid], -1).view(-1, 3)
        self.rest = spots.float() / side
        self.length = (self.rest[self.start] - self.rest[self.end]).norm(dim=1) * 0.98
        self.reset()

    def reset(self):
        self.points, self.speeds = self.rest.clone(), torch.zeros_like(self.rest)


class Solver:
    def __init__(self, cloth, stiffness, step, added):
        self.cloth, self.stiffness, self.dt, self.added = cloth, stiffness, step, added
        self.gravity = torch.tensor([0.0, 0.0, -0.1], device=cloth.rest.device)

    def gather(self, pull):
        """Return the force on each point, the sum of those of its springs."""
        forces = torch.zeros_like(self.cloth.points)
        for ends, sign in ((self.cloth.start, 1), (self.cloth.end, -1)):
            if self.added:
                forces.index_add_(0, ends, pull, alpha=sign)
            else:
                forces.index_put_((ends,), sign * pull, accumulate=True)
        return forces

    def step(self):
        cloth = self.cloth
        way = cloth.points[cloth.end] - cloth.points[cloth.start]
        length = way.norm(dim=1)
        pull = way * (self.stiffness * (length - cloth.length) / length)[:, None]
        forces = self.gather(pull) + self.gravity
        cloth.speeds = 0.999 * cloth.speeds + self.dt * forces
        cloth.points = cloth.points + self.dt * cloth.speeds


def prepare(device, repaired):
    side = 768 if device == "cuda" else 8
    return Solver(Cloth(side, device), stiffness=8.0, step=0.01, added=repaired)


@torch.inference_mode()
def run(state, steps, repaired):
    solver = state
    solver.cloth.reset()
    for _ in range(steps):
        solver.step()
    return solver.cloth.points.norm(dim=1).mean() + solver.cloth.speeds.abs().mean()


main(prepare, run, steps=600)
