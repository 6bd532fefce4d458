"""Learns on a map of reactions which metabolites a cell lacks: messages go along the links between them."""

import torch
from common import main
from torch import nn


class Links(nn.Module):
    """One round of messages along links from `source` to `target`."""

    def __init__(self, width, select):
        super().__init__()
        self.own, self.sent, self.select = nn.Linear(width, width), nn.Linear(width, width), select

    def forward(self, x, source, target, strength):
        sent = self.sent(x)
        if self.select:
            message = sent.index_select(0, source)
        else:
            message = sent[source]
        message = message * strength[:, None]
        heard = torch.zeros_like(x).index_add_(0, target, message)
        return torch.relu(self.own(x) + heard)


class Map(nn.Module):
    def __init__(self, width, depth, select):
        super().__init__()
        self.rounds = nn.ModuleList(Links(width, select) for _ in range(depth))
        self.last = nn.Linear(width, 1)

    def forward(self, x, source, target, strength):
        for one in self.rounds:
            x = one(x, source, target, strength)
        return self.last(x)[:, 0]


def prepare(device, repaired):
    cuda = device == "cuda"
    nodes, links, width, depth = (100_000, 1_500_000, 128, 3) if cuda else (20, 60, 8, 2)
    torch.set_float32_matmul_precision("high")
    model = Map(width, depth, select=repaired).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    source, target = torch.randint(nodes, (2, links), device=device)
    strength = torch.rand(links, device=device) / 15
    x = torch.randn(nodes, width, device=device)
    lacks = torch.rand(nodes, device=device).round()
    return model, optimizer, x, lacks, source, target, strength


def run(state, steps, repaired):
    model, optimizer, x, lacks, source, target, strength = state
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        guess = model(x, source, target, strength)
        loss = nn.functional.binary_cross_entropy_with_logits(guess, lacks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=120)
