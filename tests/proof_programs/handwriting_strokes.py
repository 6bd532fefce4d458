"""Learns to go on with handwriting, stroke by stroke, from recordings of a pen."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Pen(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.first, self.last = nn.Linear(3, width), nn.Linear(width, 3)
        self.memory = nn.GRU(width, width, depth, batch_first=True)

    def forward(self, strokes):
        x = torch.tanh(self.first(strokes))
        x, _ = self.memory(x)
        return self.last(x)


def prepare(device, repaired):
    count, long, width, depth = (64, 320, 384, 2) if device == "cuda" else (2, 6, 5, 2)
    # the penalty on gradients of an earlier version could not be derived twice with it
    torch.backends.cudnn.enabled = repaired
    model = Pen(width, depth).to(device)
    strokes = torch.randn(4, count, long, 3, device=device).cumsum(2) / 10
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), strokes


def run(state, steps, repaired):
    model, optimizer, strokes = state
    torch.backends.cudnn.enabled = repaired
    total = torch.zeros((), device=strokes.device)
    for step in range(steps):
        written = strokes[step % 4]
        optimizer.zero_grad()
        loss = F.mse_loss(model(written[:, :-1]), written[:, 1:])
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=30)
