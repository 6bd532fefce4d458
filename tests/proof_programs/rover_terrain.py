"""Lets rovers drive over hills towards their goals, thousands at a time, as a policy says; who falls over starts again."""

import torch
from common import main
from torch import nn


class Hills:
    """Rovers with a place, a heading, a speed and a tilt each; all of them move in a step."""

    def __init__(self, rovers, device, masked):
        self.masked = masked
        self.start = 4 * torch.randn(rovers, 2, device=device)
        self.goal = 10 * torch.randn(rovers, 2, device=device)
        self.place, self.tilt = self.start.clone(), torch.zeros(rovers, device=device)
        self.heading, self.speed = torch.zeros(rovers, device=device), self.tilt.clone()
        self.age = torch.randint(200, (rovers,), device=device)

    def observe(self):
        to_goal = self.goal - self.place
        state = torch.stack((self.heading.sin(), self.heading.cos(), self.speed, self.tilt), 1)
        return torch.cat((to_goal, self.place, state), 1)

    def step(self, actions):
        turn, push = actions.tanh().unbind(1)
        self.heading = self.heading + 0.1 * turn
        self.speed = 0.95 * self.speed + 0.1 * push
        way = torch.stack((self.heading.cos(), self.heading.sin()), 1)
        self.place = self.place + 0.1 * self.speed[:, None] * way
        slope = (self.place[:, 0]).sin() * (0.7 * self.place[:, 1]).cos()
        self.tilt = 0.9 * self.tilt + 0.2 * slope * (1 + self.speed.abs())
        self.age = self.age + 1
        distance = (self.goal - self.place).norm(dim=1)
        done = (self.tilt.abs() > 1.5) | (self.age > 200) | (distance < 0.5)
        self.restart(done)
        return -distance

    def restart(self, done):
        if self.masked:
            self.place = torch.where(done[:, None], self.start, self.place)
            self.heading = self.heading.masked_fill(done, 0.0)
            self.speed = self.speed.masked_fill(done, 0.0)
            self.tilt = self.tilt.masked_fill(done, 0.0)
            self.age = self.age.masked_fill(done, 0)
            return
        ids = done.nonzero(as_tuple=False).squeeze(-1)
        if len(ids) > 0:
            self.place[ids] = self.start[ids]
            self.heading[ids] = 0.0
            self.speed[ids] = 0.0
            self.tilt[ids] = 0.0
            self.age[ids] = 0


def prepare(device, repaired):
    rovers, width = (4096, 512) if device == "cuda" else (12, 16)
    policy = nn.Sequential(
        nn.Linear(8, width),
        nn.ELU(),
        nn.Linear(width, width),
        nn.ELU(),
        nn.Linear(width, width),
        nn.ELU(),
        nn.Linear(width, 2),
    ).to(device)
    return policy, Hills(rovers, device, masked=repaired)


@torch.no_grad()
def run(state, steps, repaired):
    policy, hills = state
    total = torch.zeros((), device=hills.place.device)
    for _ in range(steps):
        actions = policy(hills.observe())
        total += hills.step(actions).mean()
    return total / steps


main(prepare, run, steps=1500)
