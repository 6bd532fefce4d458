"""Searches a policy for carts that balance poles: thousands of carts are simulated on the GPU, moment by moment."""

import torch
from common import main
from torch import nn


def move(carts, force):
    """Return carts (place, speed, angle, turning) a moment later (the equations of the classic task)."""
    place, speed, angle, turning = carts.unbind(1)
    sin, cos = angle.sin(), angle.cos()
    push = (force + 0.05 * turning.square() * sin) / 1.1
    twist = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos.square() / 1.1))
    pull = push - 0.05 * twist * cos / 1.1
    after = torch.stack(
        [place + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turning, turning + 0.02 * twist],
        1,
    )
    fallen = (after[:, 0].abs() > 2.4) | (after[:, 2].abs() > 0.21)
    return torch.where(fallen[:, None], carts.new_zeros(()), after), fallen


class Simulation:
    """Carts and what their policy has earned; a moment of all of them is `step`."""

    def __init__(self, count, width, device):
        self.policy = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2)).to(device)
        self.carts = 0.05 * torch.randn(count, 4, device=device)
        self.start = self.carts.clone()
        self.earned = torch.zeros(count, device=device)

    @torch.no_grad()
    def step(self):
        scores = self.policy(self.carts)
        force = torch.where(scores[:, 0] > scores[:, 1], 10.0, -10.0)
        after, fallen = move(self.carts, force)
        self.carts.copy_(after)
        self.earned += 1 - fallen.float()


def prepare(device, repaired):
    simulation = Simulation(*((8192, 64) if device == "cuda" else (8, 8)), device)
    step = simulation.step
    if repaired and device == "cuda":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            simulation.step()
        step = graph.replay
    return simulation, step


def run(state, steps, repaired):
    simulation, advance = state
    simulation.carts.copy_(simulation.start)
    simulation.earned.zero_()
    for _ in range(steps):
        advance()
    return simulation.earned.mean() / steps


main(prepare, run, steps=4000)
