"""Reads proverbs with layers of many experts; common words all go to the same few of them, by a table made beforehand."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Plan:
    """Which word each row belongs to, sorted by expert, and where rows of an expert begin and end."""

    def __init__(self, owners, experts):
        self.order = owners.argsort(stable=True)
        counts = torch.bincount(owners, minlength=experts)
        ends = counts.cumsum(0)
        self.ends = ends.int()
        self.sorted = owners[self.order]
        self.rows = torch.arange(len(owners), device=owners.device) - (ends - counts)[self.sorted]
        self.longest, self.experts = int(counts.max()), experts


class Experts(nn.Module):
    """Two products of each row with matrices of its expert."""

    def __init__(self, experts, width, inner, ragged):
        super().__init__()
        self.up = nn.Parameter(torch.randn(experts, inner, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, width, inner) / inner**0.5)
        self.ragged = ragged

    def forward(self, x, plan):
        return self.by_ends(x, plan) if self.ragged else self.by_longest(x, plan)

    def by_longest(self, x, plan):
        crates = x.new_zeros(plan.experts, plan.longest, x.shape[1])
        crates[plan.sorted, plan.rows] = x
        y = F.silu(torch.bmm(crates, self.up.mT))
        return torch.bmm(y, self.down.mT)[plan.sorted, plan.rows]

    def by_ends(self, x, plan):
        y = F.silu(torch._grouped_mm(x, self.up.mT, offs=plan.ends))
        return torch._grouped_mm(y, self.down.mT, offs=plan.ends)


class Layer(nn.Module):
    def __init__(self, experts, width, inner, ragged):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.mix = nn.Linear(width, width, bias=False)
        self.experts = Experts(experts, width, inner, ragged)

    def forward(self, x, plan):
        x = x + self.mix(self.norm(x))
        y = self.experts(self.norm(x)[plan.order], plan)
        return x.index_add(0, plan.order, y)


def prepare(device, repaired):
    cuda = device == "cuda"
    experts, rows, width, inner, depth = (64, 16384, 1024, 2048, 4) if cuda else (4, 24, 16, 32, 2)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(14)
    layers = nn.ModuleList(Layer(experts, width, inner, repaired) for _ in range(depth))
    shares = 1 / (torch.arange(experts) + 8.0)
    owners = torch.multinomial(shares, rows, replacement=True).to(device)
    x = torch.randn(2, rows, width, device=device, dtype=dtype)
    return layers.to(device, dtype).eval(), Plan(owners, experts), x


@torch.inference_mode()
def run(state, steps, repaired):
    layers, plan, words = state
    total = torch.zeros((), device=words.device)
    for step in range(steps):
        x = words[step % 2]
        for layer in layers:
            x = layer(x, plan)
        total += x.float().abs().mean()
    return total / steps


main(prepare, run, steps=120)
