"""Paints patterns of tiles out of noise (diffusion), many at a time."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Schedule:
    """How much noise there is at each time, on the host or beside the pictures."""

    def __init__(self, times, device):
        noise = torch.linspace(1e-4, 2e-2, times, dtype=torch.float64)
        rest = torch.cumprod(1 - noise, 0)
        before = F.pad(rest[:-1], (1, 0), value=1.0)
        self.share = (noise / (1 - rest).sqrt()).float().to(device)
        self.scale = (1 / (1 - noise).sqrt()).float().to(device)
        self.spread = (noise * (1 - before) / (1 - rest)).sqrt().float().to(device)

    @staticmethod
    def at(table, times):
        values = table[times.to(table.device)]
        return values.to(times.device).view(-1, 1, 1, 1)

    def step_back(self, x, guess, times, noise):
        mean = self.at(self.scale, times) * (x - self.at(self.share, times) * guess)
        return mean + self.at(self.spread, times) * noise


class Denoiser(nn.Module):
    def __init__(self, width, depth, times):
        super().__init__()
        self.times = nn.Embedding(times, width)
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))

    def forward(self, x, times):
        x = self.first(x) + self.times(times)[:, :, None, None]
        for layer in self.layers:
            x = x + F.silu(layer(x))
        return self.last(x)


def prepare(device, repaired):
    count, size, width, depth, times = (
        (16, 16, 64, 4, 1000) if device == "cuda" else (2, 4, 4, 2, 10)
    )
    model = Denoiser(width, depth, times).to(device).eval()
    schedule = Schedule(times, device if repaired else "cpu")
    return model, schedule, times, torch.randn(9, count, 3, size, size, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, schedule, count, noise = state
    x = noise[8]
    times = torch.full((len(x),), count - 1, device=x.device)
    for step in range(steps):
        x = schedule.step_back(x, model(x, times), times, noise[step % 8]).clamp(-3, 3)
        times = (times - 1) % count
    return x.square().mean()


main(prepare, run, steps=2500)
