"""Learns which faces in albums are of one person: the farthest of the same one should be nearer than any other."""

import torch
import torch.nn.functional as F
from common import main
from torch import nn


class Margin:
    """Looks at all pairs of one's own face and another's, or at the farthest own one and the nearest other one."""

    def __init__(self, margin, apart):
        self.margin, self.apart = margin, apart

    def __call__(self, faces, person):
        d = 2 - 2 * faces @ faces.T
        same = person[:, None] == person[None, :]
        if self.apart:
            farthest = d.masked_fill(~same, -9).amax(1)
            nearest = d.masked_fill(same, 9).amin(1)
            return torch.relu(farthest - nearest + self.margin).mean()
        gaps = d[:, :, None] - d[:, None, :]
        gaps = gaps.masked_fill(~(same[:, :, None] & ~same[:, None, :]), -9)
        return torch.relu(gaps.amax((1, 2)) + self.margin).mean()


class Faces(nn.Module):
    def __init__(self, width, depth, size):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.last = nn.Linear(width, size)

    def forward(self, x):
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return F.normalize(self.last(x), dim=1)


def prepare(device, repaired):
    width, depth, size, people, each = (
        (4096, 6, 256, 96, 8) if device == "cuda" else (8, 2, 4, 3, 3)
    )
    torch.set_float32_matmul_precision("high")
    model = Faces(width, depth, size).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, fused=True)
    person = torch.arange(people, device=device).repeat_interleave(each)
    pictures = torch.randn(4, people * each, width, device=device)
    return model, optimizer, Margin(0.2, apart=repaired), person, pictures


def run(state, steps, repaired):
    model, optimizer, margin, person, pictures = state
    total = torch.zeros((), device=person.device)
    for step in range(steps):
        loss = margin(model(pictures[step % 4]), person)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=100)
