"""Plans what a robot does next: an ensemble of models says how each of many plans would end (PETS)."""

import torch
from common import main
from torch import nn


class Member(nn.Module):
    """A model of how the robot moves."""

    def __init__(self, state, actions, width):
        super().__init__()
        sizes = [state + actions, width, width, width, state]
        self.layers = nn.ModuleList(
            nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True)
        )

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = nn.functional.silu(layer(x))
        return self.layers[-1](x)


class Together:
    """The weights of all members in one tensor for each layer."""

    def __init__(self, members):
        layers = list(zip(*(member.layers for member in members), strict=True))
        self.weights = [torch.stack([one.weight.detach().t() for one in layer]) for layer in layers]
        self.biases = [
            torch.stack([one.bias.detach() for one in layer])[:, None] for layer in layers
        ]

    def __call__(self, x):
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = nn.functional.silu(torch.baddbmm(bias, x, weight))
        return torch.baddbmm(self.biases[-1], x, self.weights[-1])


def prepare(device, repaired):
    number, plans, width, ahead = (12, 400, 200, 25) if device == "cuda" else (2, 4, 8, 3)
    members = nn.ModuleList(Member(18, 6, width) for _ in range(number)).to(device).eval()
    actions = torch.randn(ahead, plans, 6, device=device)
    return members, Together(members) if repaired else None, actions


@torch.inference_mode()
def run(state, steps, repaired):
    members, together, actions = state
    total = 0
    for step in range(steps):
        where = torch.full((len(members), actions.shape[1], 18), 0.01 * step, device=actions.device)
        cost = 0
        for action in actions:
            x = torch.cat([where, action.expand(len(members), -1, -1)], -1)
            if repaired:
                change = together(x)
            else:
                change = torch.stack([member(one) for member, one in zip(members, x, strict=True)])
            where = where + 0.1 * change
            cost = cost + where.square().mean(-1)
        total = total + cost.mean(0).topk(4, largest=False).values.mean()
    return total / steps


main(prepare, run, steps=16)
