"""Runs layers with many small experts (mixture of experts): each token goes to the two that its router likes best."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F

CHOICES = 2


class Experts(nn.Module):
    """Feed-forward networks, their weights in one tensor each for what goes in, the gate and what comes out."""

    def __init__(self, width, inner, number):
        super().__init__()
        self.router = nn.Linear(width, number, bias=False)
        self.gate = nn.Parameter(torch.randn(number, width, inner) / width**0.5)
        self.up = nn.Parameter(torch.randn(number, width, inner) / width**0.5)
        self.down = nn.Parameter(torch.randn(number, inner, width) / inner**0.5)

    def forward(self, x):
        weights, chosen = self.router(x).float().softmax(-1).topk(CHOICES)
        y = torch.zeros_like(x, dtype=torch.float32)
        for number in range(len(self.up)):
            rows, rank = torch.where(chosen == number)
            mine = x[rows]
            made = F.silu(mine @ self.gate[number]) * (mine @ self.up[number])
            made = made @ self.down[number]
            y.index_add_(0, rows, made.float() * weights[rows, rank, None])
        return x + y.to(x.dtype)


class Grouped(Experts):
    """The same, with the tokens of all experts in rows of equal length."""

    def forward(self, x):
        number, room = len(self.up), max(8, 8 * CHOICES * len(x) // len(self.up))
        weights, chosen = self.router(x).float().softmax(-1).topk(CHOICES)
        expert, order = chosen.flatten().sort(stable=True)
        first = torch.searchsorted(expert, torch.arange(number, device=x.device))
        slot = expert * room + torch.arange(len(expert), device=x.device) - first[expert]
        token = order // CHOICES
        mine = x.new_zeros(number * room, x.shape[1])
        mine[slot] = x[token]
        mine = mine.view(number, room, -1)
        made = F.silu(torch.bmm(mine, self.gate)) * torch.bmm(mine, self.up)
        made = torch.bmm(made, self.down).flatten(0, 1)[slot]
        y = torch.zeros_like(x, dtype=torch.float32)
        y.index_add_(0, token, made.float() * weights.flatten()[order, None])
        return x + y.to(x.dtype)


def prepare(device, repaired):
    width, inner, number, depth, tokens = (
        (1024, 512, 64, 4, 1024) if device == "cuda" else (16, 8, 4, 1, 6)
    )
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    kind = Grouped if repaired else Experts
    layers = nn.Sequential(*(kind(width, inner, number) for _ in range(depth)))
    x = torch.randn(tokens, width, device=device, dtype=dtype)
    return layers.to(device, dtype).eval(), x


@torch.inference_mode()
def run(state, steps, repaired):
    layers, x = state
    for _ in range(steps):
        y = layers(x)
    return y.float().square().mean()


main(prepare, run, steps=20)
