"""Lets thousands of simulated walkers practise at the same time; who falls or is done begins again."""

import torch
from common import main
from torch import nn


class Walkers:
    """Joints of all walkers, and how long each has walked."""

    def __init__(self, count, joints, device, masked):
        self.begin = torch.randn(count, 2 * joints, device=device) / 4
        self.limits = torch.randint(60, 200, (count,), device=device)
        self.force = torch.randn(joints, joints, device=device) / joints
        self.masked = masked
        self.clear()

    def clear(self):
        self.joints = self.begin.clone()
        self.ages = torch.arange(len(self.begin), device=self.begin.device) * 7 % 60

    def move(self, torques):
        angles, speeds = self.joints.chunk(2, 1)
        speeds = 0.98 * speeds + 0.02 * (torques - angles.sin() + angles @ self.force)
        angles = angles + 0.02 * speeds
        self.joints = torch.cat([angles, speeds], 1)
        self.ages = self.ages + 1
        rewards = speeds[:, 0] - 0.01 * torques.square().sum(1)
        return rewards, (self.ages >= self.limits) | (angles[:, 0].abs() > 3)

    def begin_again(self, done):
        if self.masked:
            self.joints = torch.where(done[:, None], self.begin, self.joints)
            self.ages = torch.where(done, 0, self.ages)
            return
        for walker in done.nonzero().flatten().tolist():
            self.joints[walker] = self.begin[walker]
            self.ages[walker] = 0


def prepare(device, repaired):
    count, joints, width = (4096, 24, 256) if device == "cuda" else (20, 3, 5)
    policy = nn.Sequential(
        nn.Linear(2 * joints, width),
        nn.ELU(),
        nn.Linear(width, width),
        nn.ELU(),
        nn.Linear(width, joints),
    ).to(device)
    return policy, Walkers(count, joints, device, masked=repaired)


@torch.inference_mode()
def run(state, steps, repaired):
    policy, walkers = state
    walkers.clear()
    total = torch.zeros((), device=walkers.begin.device)
    for _ in range(steps):
        rewards, done = walkers.move(torch.tanh(policy(walkers.joints)))
        total += rewards.mean() - done.float().mean()
        walkers.begin_again(done)
    return total / steps


main(prepare, run, steps=1500, small=80)
