"""Watches the turbines of power plants: a network looks at each new reading together with some thousands before it."""

import torch
import torch.nn.functional as F
from common import main
from torch import nn


class Window(nn.Module):
    """Attention of a new reading to those kept, of which it replaces the oldest."""

    def __init__(self, heads, size):
        super().__init__()
        width = heads * size
        self.heads, self.size = heads, size
        self.norm = nn.LayerNorm(width)
        self.ask, self.answer = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, kept, at):
        count = len(x)
        q, k, v = self.ask(self.norm(x)).view(count, 3, self.heads, 1, self.size).unbind(1)
        kept[0, :, :, at : at + 1], kept[1, :, :, at : at + 1] = k, v
        keys, values = kept.to(q.dtype)
        mixed = F.scaled_dot_product_attention(q, keys, values)
        return x + self.answer(mixed.reshape(count, -1))


class Watch(nn.Module):
    def __init__(self, sensors, heads, size, depth):
        super().__init__()
        self.first, self.last = nn.Linear(sensors, heads * size), nn.Linear(heads * size, sensors)
        self.windows = nn.ModuleList(Window(heads, size) for _ in range(depth))

    def forward(self, reading, kept, at):
        x = self.first(reading)
        for window, part in zip(self.windows, kept, strict=True):
            x = window(x, part, at)
        return self.last(x)


def prepare(device, repaired):
    cuda = device == "cuda"
    dtype = torch.bfloat16
    sensors, heads, size, depth = (64, 8, 64, 4) if cuda else (5, 2, 4, 2)
    turbines, window = (128, 4096) if cuda else (3, 12)
    model = Watch(sensors, heads, size, depth).to(device, dtype).eval()
    readings = torch.randn(16, turbines, sensors, device=device, dtype=dtype)
    room = (depth, 2, turbines, heads, window, size)
    kept = torch.zeros(room, device=device, dtype=dtype if repaired else None)
    return model, kept, readings


@torch.inference_mode()
def run(state, steps, repaired):
    model, kept, readings = state
    total = torch.zeros((), device=readings.device)
    for step in range(steps):
        guess = model(readings[step % 16], kept, step % kept.shape[4])
        total += (guess - readings[(step + 1) % 16]).float().square().mean()
    return total / steps


main(prepare, run, steps=300)
