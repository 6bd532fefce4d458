"""Tries thousands of ways for an arm of ten joints to reach a cup, and moves towards those that came nearest."""

import torch
from common import main


def turn_one(axis, angle):
    """Turns (arms, 4, 4) about an axis of three numbers by angles (arms,)."""
    x, y, z = axis
    c, s = angle.cos(), angle.sin()
    turn = torch.eye(4, device=angle.device).repeat(len(angle), 1, 1)
    turn[:, 0, 0] = c + x * x * (1 - c)
    turn[:, 0, 1] = x * y * (1 - c) - z * s
    turn[:, 0, 2] = x * z * (1 - c) + y * s
    turn[:, 1, 0] = y * x * (1 - c) + z * s
    turn[:, 1, 1] = c + y * y * (1 - c)
    turn[:, 1, 2] = y * z * (1 - c) - x * s
    turn[:, 2, 0] = z * x * (1 - c) - y * s
    turn[:, 2, 1] = z * y * (1 - c) + x * s
    turn[:, 2, 2] = c + z * z * (1 - c)
    return turn


class Arm:
    def __init__(self, joints, device, together):
        axes = torch.nn.functional.normalize(torch.randn(joints, 3), dim=1)
        self.axes = axes.tolist()
        self.links = torch.eye(4).repeat(joints, 1, 1)
        self.links[:, :3, 3] = 0.3 * torch.randn(joints, 3)
        self.links = self.links.to(device)
        x, y, z = axes.unbind(1)
        none = torch.zeros_like(x)
        cross = torch.stack((none, -z, y, none, z, none, -x, none, -y, x, none, none), 1)
        self.cross = torch.cat((cross.view(-1, 3, 4), torch.zeros(joints, 1, 4)), 1).to(device)
        self.square = self.cross @ self.cross
        self.together = together

    def turns(self, angles):
        """Turns (arms, joints, 4, 4) of all joints."""
        s, c = angles.sin()[..., None, None], angles.cos()[..., None, None]
        eye = torch.eye(4, device=angles.device)
        return eye + s * self.cross + (1 - c) * self.square

    def hand(self, angles):
        """Where the hand is (arms, 3) for the angles of all joints (arms, joints)."""
        if self.together:
            poses = self.links @ self.turns(angles)
            pose = poses[:, 0]
            for k in range(1, poses.shape[1]):
                pose = pose @ poses[:, k]
            return pose[:, :3, 3]
        pose = None
        for k, axis in enumerate(self.axes):
            joint = self.links[k] @ turn_one(axis, angles[:, k])
            pose = joint if pose is None else pose @ joint
        return pose[:, :3, 3]


def prepare(device, repaired):
    arms, joints = (4096, 10) if device == "cuda" else (8, 3)
    arm = Arm(joints, device, together=repaired)
    noise = 0.2 * torch.randn(8, arms, joints, device=device)
    return arm, noise, torch.tensor([0.4, -0.2, 0.5], device=device)


@torch.no_grad()
def run(state, steps, repaired):
    arm, noise, cup = state
    plan = torch.zeros(noise.shape[-1], device=cup.device)
    total = torch.zeros((), device=cup.device)
    for step in range(steps):
        tried = plan + noise[step % len(noise)]
        far = (arm.hand(tried) - cup).norm(dim=1)
        weights = torch.softmax(-4 * far, 0)
        plan = (weights[:, None] * tried).sum(0)
        total += far.mean()
    return total / steps


main(prepare, run, steps=200)
