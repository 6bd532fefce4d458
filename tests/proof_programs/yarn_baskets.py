"""Says which yarn a knitter will take next: baskets come as dozens of small columns, by name, and are scored."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Advisor(nn.Module):
    """Scores baskets, given as numbers (columns, baskets), of which each column has kinds of its own."""

    def __init__(self, columns, kinds, width, hidden):
        super().__init__()
        self.kinds = nn.Embedding(columns * kinds, width)
        self.register_buffer("begins", torch.arange(columns, dtype=torch.int32)[:, None] * kinds)
        self.first, self.second = nn.Linear(columns * width, hidden), nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, 1)

    def forward(self, numbers):
        x = self.kinds((numbers + self.begins).T).flatten(1)
        x = F.relu(self.first(x), inplace=True)
        return self.last(F.relu(self.second(x), inplace=True))[:, 0]


class ColumnByColumn:
    """Brings a basket to a device as its columns stand there."""

    def __init__(self, device):
        self.device = device

    def __call__(self, columns):
        there = {name: column.to(self.device) for name, column in columns.items()}
        return torch.stack(list(there.values()))


class InOneBlock:
    """The same by way of a block in pinned memory, of which there are two in turn."""

    def __init__(self, device, columns, baskets):
        cuda = torch.device(device).type == "cuda"
        self.device = device
        self.blocks = [torch.empty(columns, baskets, dtype=torch.int32, pin_memory=cuda) for _ in range(2)]
        self.copied = [torch.cuda.Event() if cuda else None for _ in range(2)]

    def __call__(self, columns):
        self.blocks.reverse(), self.copied.reverse()
        block, copied = self.blocks[0], self.copied[0]
        if copied is not None:
            copied.synchronize()
        torch.stack(list(columns.values()), out=block)
        there = block.to(self.device, non_blocking=True)
        if copied is not None:
            copied.record()
        return there


def prepare(device, repaired):
    cuda = device == "cuda"
    columns, kinds, width, hidden, baskets = (72, 5000, 16, 2048, 4096) if cuda else (3, 4, 2, 8, 5)
    torch.manual_seed(34)
    advisor = Advisor(columns, kinds, width, hidden).to(device).eval()
    if cuda:
        advisor = advisor.bfloat16()
    arrived = [
        {f"column_{at}": torch.randint(0, kinds, (baskets,), dtype=torch.int32) for at in range(columns)}
        for _ in range(4)
    ]
    bring = InOneBlock(device, columns, baskets) if repaired else ColumnByColumn(device)
    return advisor, bring, arrived


@torch.inference_mode()
def run(state, steps, repaired):
    advisor, bring, arrived = state
    total = torch.zeros((), device=advisor.begins.device)
    for step in range(steps):
        scores = advisor(bring(arrived[step % len(arrived)]))
        total += scores.float().square().mean()
    return total / steps


main(prepare, run, steps=600)
