"""Learns to tell strokes of swimmers apart from sensors at their wrists: attention over a minute of readings."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width, heads, options):
        super().__init__()
        self.options = options
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        y = self.norms[0](x)
        y, _ = self.attention(y, y, y, **self.options)
        x = x + y
        return x + self.mlp(self.norms[1](x))


class Strokes(nn.Module):
    def __init__(self, sensors, width, heads, depth, strokes, options):
        super().__init__()
        self.enter = nn.Conv1d(sensors, width, 5, padding=2)
        self.layers = nn.ModuleList(Layer(width, heads, options) for _ in range(depth))
        self.last = nn.Linear(width, strokes)

    def forward(self, readings):
        x = self.enter(readings).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.last(x.mean(1)).float()


def prepare(device, repaired):
    cuda = device == "cuda"
    swims, length, sensors, width, heads, depth, strokes = (
        (24, 1200, 6, 384, 8, 4, 5) if cuda else (2, 12, 3, 16, 2, 2, 3)
    )
    options = {"need_weights": False} if repaired else {}
    dtype = torch.bfloat16 if cuda else torch.float32
    model = Strokes(sensors, width, heads, depth, strokes, options).to(device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    readings = torch.randn(2, swims, sensors, length, device=device, dtype=dtype)
    return model, optimizer, readings, torch.randint(strokes, (2, swims), device=device)


def run(state, steps, repaired):
    model, optimizer, readings, strokes = state
    total = torch.zeros((), device=readings.device)
    for step in range(steps):
        loss = F.cross_entropy(model(readings[step % 2]), strokes[step % 2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=60)
