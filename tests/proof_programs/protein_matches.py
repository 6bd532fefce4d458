"""Says how alike two proteins are: messages go along the bonds of both, and all atoms of each are summed up."""

import torch
from common import main
from torch import nn


def unsorted_segment_sum(data, segment_ids, num_segments, there):
    """Sums the rows of `data` that have the same segment."""
    shape = (num_segments, data.shape[1])
    if there:
        total = torch.zeros(shape, device=data.device, dtype=data.dtype)
    else:
        total = torch.zeros(shape, dtype=data.dtype).to(data.device)
    return total.index_add_(0, segment_ids, data)


class Propagation(nn.Module):
    def __init__(self, width, there):
        super().__init__()
        self.message, self.update = nn.Linear(2 * width, width), nn.Linear(2 * width, width)
        self.there = there

    def forward(self, x, source, target):
        pair = torch.cat([x.index_select(0, source), x.index_select(0, target)], 1)
        messages = torch.relu(self.message(pair))
        heard = unsorted_segment_sum(messages, target, len(x), self.there)
        return x + torch.tanh(self.update(torch.cat([x, heard], 1)))


class Matching(nn.Module):
    def __init__(self, width, depth, there):
        super().__init__()
        self.rounds = nn.ModuleList(Propagation(width, there) for _ in range(depth))
        self.last, self.there = nn.Linear(width, width), there

    def forward(self, x, source, target, protein, proteins):
        for one in self.rounds:
            x = one(x, source, target)
        whole = unsorted_segment_sum(self.last(x), protein, proteins, self.there)
        first, second = whole.unflatten(0, (-1, 2)).unbind(1)
        return nn.functional.cosine_similarity(first, second)


def prepare(device, repaired):
    cuda = device == "cuda"
    atoms, bonds, width, depth, proteins = (
        (60_000, 180_000, 256, 4, 512) if cuda else (24, 60, 8, 2, 4)
    )
    torch.set_float32_matmul_precision("high")
    model = Matching(width, depth, there=repaired).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(atoms, width, device=device)
    source, target = torch.randint(atoms, (2, bonds), device=device)
    protein = torch.arange(atoms, device=device) % proteins
    alike = torch.rand(proteins // 2, device=device).round() * 2 - 1
    return model, optimizer, x, source, target, protein, alike


def run(state, steps, repaired):
    model, optimizer, x, source, target, protein, alike = state
    total = torch.zeros((), device=x.device)
    for _ in range(steps):
        guess = model(x, source, target, protein, 2 * len(alike))
        loss = (guess - alike).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=30)
