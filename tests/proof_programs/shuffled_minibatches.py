"""Trains a policy by PPO: several passes over what was played, in minibatches of a new order each time."""

import torch
from common import main
from torch import nn

SIZE = 1 << 18


class Agent(nn.Module):
    """Means of the actions and the value of a state, from a trunk that both share."""

    def __init__(self, state, actions, width):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(state, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.mean, self.value = nn.Linear(width, actions), nn.Linear(width, 1)
        self.log_std = nn.Parameter(torch.zeros(actions))

    def forward(self, states, actions):
        h = self.trunk(states)
        error = (actions - self.mean(h)) * torch.exp(-self.log_std)
        return -(0.5 * error.square() + self.log_std).sum(-1), self.value(h)[:, 0]


def prepare(device, repaired):
    played, width = (1 << 20, 128) if device == "cuda" else (128, 8)
    torch.backends.cuda.matmul.allow_tf32 = True
    agent = Agent(24, 6, width).to(device)
    optimizer = torch.optim.Adam(
        agent.parameters(), lr=1e-5, fused=True if device == "cuda" else None
    )
    states = torch.randn(played, 24, device=device)
    actions = torch.randn(played, 6, device=device)
    rollout = {
        "states": states,
        "actions": actions,
        "log_probs": -actions.square().sum(-1) / 2,
        "advantages": torch.randn(played, device=device),
        "returns": states.mean(-1),
    }
    orders = [torch.randperm(played) for _ in range(4)]
    if repaired:
        orders = [order.to(device) for order in orders]
    return agent, optimizer, rollout, orders


def run(state, steps, repaired):
    agent, optimizer, rollout, orders = state
    played = len(rollout["returns"])
    size = min(SIZE, played // 4)
    total = 0
    for epoch in range(steps):
        order = orders[epoch % len(orders)]
        for start in range(0, played, size):
            chosen = order[start : start + size]
            batch = {name: values[chosen] for name, values in rollout.items()}
            log_probs, value = agent(batch["states"], batch["actions"])
            ratio = torch.exp((log_probs - batch["log_probs"]).clamp(-5, 5))
            gain = batch["advantages"]
            policy = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            loss = policy + 0.5 * (value - batch["returns"]).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total = total + loss.detach()
    return total / steps


main(prepare, run, steps=16, warm=1)
