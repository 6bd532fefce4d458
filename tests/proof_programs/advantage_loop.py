"""Improves a policy (PPO): advantages are added up from the last step in time to the first."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

DISCOUNT, SMOOTH = 0.99, 0.95


def advantages(rewards, values, alive):
    """Return generalised advantages, [time, environment]; values have a row more."""
    found = torch.zeros_like(rewards)
    last = torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        surprise = rewards[t] + DISCOUNT * values[t + 1] * alive[t] - values[t]
        last = surprise + DISCOUNT * SMOOTH * alive[t] * last
        found[t] = last
    return found


def advantages_at_once(rewards, values, alive):
    """Return what `advantages` returns by one product with the weights of later surprises."""
    surprise = rewards + DISCOUNT * values[1:] * alive - values[:-1]
    time = torch.arange(len(rewards), device=rewards.device)
    ahead = time[None] - time[:, None]
    decay = torch.where(ahead >= 0, (DISCOUNT * SMOOTH) ** ahead.clamp(min=0).float(), 0.0)
    lives = (1 - alive).cumsum(0) + alive - 1  # what ends a life belongs to it
    same = lives.t()[:, :, None] == lives.t()[:, None, :]
    return torch.bmm(decay * same, surprise.t()[..., None])[..., 0].t()


def prepare(device, repaired):
    time, games, width = (512, 64, 512) if device == "cuda" else (12, 4, 8)
    policy = nn.Sequential(
        nn.Linear(32, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 9)
    ).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)
    seen = torch.randn(time + 1, games, 32, device=device)
    actions = torch.randint(8, (time, games), device=device)
    rewards = torch.randn(time, games, device=device)
    alive = (torch.rand(time, games, device=device) > 0.01).float()
    return policy, optimizer, seen, actions, rewards, alive


def run(state, steps, repaired):
    policy, optimizer, seen, actions, rewards, alive = state
    gain = advantages_at_once if repaired else advantages
    for _ in range(steps):
        made = policy(seen)
        values = made[..., 8]
        with torch.no_grad():
            found = gain(rewards, values, alive)
        chance = F.log_softmax(made[:-1, :, :8], -1).gather(-1, actions[..., None])[..., 0]
        wanted = found + values[:-1].detach()
        loss = F.mse_loss(values[:-1], wanted) - (chance * found).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


main(prepare, run, steps=10)
