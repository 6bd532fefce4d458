"""Moves poses of a small molecule in a pocket of a protein a little, and tells how far each is from the known one."""

import torch
from common import main


class Pocket:
    """Spheres that push and pull the atoms of a pose."""

    def __init__(self, centres, radii):
        self.centres, self.radii = centres, radii

    def energy(self, poses):
        near = torch.cdist(poses, self.centres.expand(len(poses), -1, -1))
        return (torch.exp(-2 * (near - self.radii)) - 2 * torch.exp(self.radii - near)).sum((1, 2))

    def relax(self, poses, moves, size):
        for _ in range(moves):
            poses = poses.detach().requires_grad_()
            (push,) = torch.autograd.grad(self.energy(poses).sum(), poses)
            poses = poses - size * push.clamp(-5, 5)
        return poses.detach()


def distance_one(pose, known):
    """Root of the mean squared distance of atoms, of the best turn of a pose onto the known one."""
    a, b = pose - pose.mean(0), known - known.mean(0)
    u, s, v = torch.linalg.svd(a.T @ b)
    sign = torch.det(u @ v).sign()
    overlap = s[0] + s[1] + sign * s[2]
    squares = a.square().sum() + b.square().sum()
    return ((squares - 2 * overlap).clamp(min=0) / len(known)).sqrt()


def distance_all(poses, known):
    """The same of all poses (poses, atoms, 3)."""
    a, b = poses - poses.mean(1, keepdim=True), known - known.mean(0)
    u, s, v = torch.linalg.svd(a.transpose(1, 2) @ b)
    sign = torch.det(u @ v).sign()
    overlap = s[:, 0] + s[:, 1] + sign * s[:, 2]
    squares = a.square().sum((1, 2)) + b.square().sum()
    return ((squares - 2 * overlap).clamp(min=0) / len(known)).sqrt()


def prepare(device, repaired):
    poses, atoms, spheres = (64, 40, 600) if device == "cuda" else (4, 6, 9)
    known = 3 * torch.randn(atoms, 3, device=device)
    pocket = Pocket(8 * torch.randn(spheres, 3, device=device), 2.0)
    tried = known + 0.8 * torch.randn(poses, atoms, 3, device=device)
    return pocket, known, tried


def run(state, steps, repaired):
    pocket, known, poses = state
    total = torch.zeros((), device=known.device)
    for _ in range(steps):
        poses = pocket.relax(poses, moves=5, size=1e-3)
        if repaired:
            far = distance_all(poses, known)
        else:
            far = torch.stack([distance_one(pose, known) for pose in poses])
        total += far.mean() + far.min()
    return total / steps


main(prepare, run, steps=24)
