"""Imagines what would happen: a world model and an actor take turns, and both speak in distributions."""

import torch
from common import main
from torch import nn
from torch.distributions import Independent, Normal


class World(nn.Module):
    """What comes next, given what is known and what is done; as in Dreamer."""

    def __init__(self, known, chance, actions, width):
        super().__init__()
        self.mix = nn.Sequential(nn.Linear(chance + actions, width), nn.ELU())
        self.memory = nn.GRUCell(width, known)
        self.prior = nn.Sequential(
            nn.Linear(known, width), nn.ELU(), nn.Linear(width, width), nn.ELU(),
            nn.Linear(width, 2 * chance),
        )  # fmt: skip
        self.actor = nn.Sequential(
            nn.Linear(known + chance, width), nn.ELU(), nn.Linear(width, width), nn.ELU(),
            nn.Linear(width, 2 * actions),
        )  # fmt: skip
        self.reward = nn.Sequential(nn.Linear(known + chance, width), nn.ELU(), nn.Linear(width, 2))


def spread(out, check):
    """Return a distribution whose mean and spread a network gave."""
    mean, raw = out.chunk(2, -1)
    std = nn.functional.softplus(raw) + 0.1
    return Independent(Normal(mean, std, validate_args=check), 1, validate_args=check)


def prepare(device, repaired):
    known, chance, actions, width, dreams = (
        (512, 64, 12, 512, 2048) if device == "cuda" else (8, 4, 2, 8, 3)
    )
    torch.backends.cuda.matmul.allow_tf32 = True
    world = World(known, chance, actions, width).to(device)
    return (
        world,
        torch.zeros(dreams, known, device=device),
        torch.zeros(dreams, chance, device=device),
    )


@torch.no_grad()
def run(state, steps, repaired):
    world, known, chance = state
    check = False if repaired else None
    torch.manual_seed(2)
    total = 0
    for _ in range(steps):
        h, z, value = known, chance, 0
        for _ in range(15):
            policy = spread(world.actor(torch.cat([h, z], -1)), check)
            action = policy.rsample()
            h = world.memory(world.mix(torch.cat([z, action], -1)), h)
            prior = spread(world.prior(h), check)
            z = prior.rsample()
            reward = spread(world.reward(torch.cat([h, z], -1)), check)
            value = value + reward.mean[:, 0] - 1e-3 * policy.log_prob(action)
        total = total + value.mean()
    return total / steps


main(prepare, run, steps=25)
