"""Learns to find stalls in photographs of markets: an encoder in which all places of a photograph read each other, and queries."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width, heads, shown):
        super().__init__()
        self.shown = shown
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.read = nn.MultiheadAttention(width, heads, batch_first=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norms[0](x)
        found, _ = self.read(y, y, y, need_weights=self.shown)
        x = x + found
        return x + self.down(F.relu(self.up(self.norms[1](x))))


class Finder(nn.Module):
    """From places (photographs, places, colours) to boxes (photographs, places, 4)."""

    def __init__(self, colours, width, heads, depth, shown):
        super().__init__()
        self.enter, self.last = nn.Linear(colours, width), nn.Linear(width, 4)
        self.layers = nn.ModuleList(Layer(width, heads, shown) for _ in range(depth))

    def forward(self, places):
        x = self.enter(places)
        for layer in self.layers:
            x = layer(x)
        return self.last(x).sigmoid()


def prepare(device, repaired):
    cuda = device == "cuda"
    photos, places, colours, width, heads, depth = (
        (4, 2048, 96, 256, 8, 6) if cuda else (2, 12, 6, 16, 2, 2)
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(14)
    model = Finder(colours, width, heads, depth, shown=not repaired).to(device, dtype)
    photographs = torch.randn(3, photos, places, colours, device=device, dtype=dtype)
    boxes = torch.rand(3, photos, places, 4, device=device, dtype=dtype)
    return model, torch.optim.SGD(model.parameters(), lr=1e-4), photographs, boxes


def run(state, steps, repaired):
    model, optimizer, photographs, boxes = state
    total = torch.zeros((), device=boxes.device)
    for step in range(steps):
        loss = F.l1_loss(model(photographs[step % 3]).float(), boxes[step % 3].float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=40)
