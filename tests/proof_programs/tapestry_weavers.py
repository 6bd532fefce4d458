"""Weaves tapestries from noise: a network takes noise away along falling levels, with two looks a level (Heun)."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Weaver(nn.Module):
    """Tells a tapestry (batch, threads, colours) without noise of a level from one with it."""

    def __init__(self, colours, width, depth, dtype):
        super().__init__()
        self.dtype = dtype
        self.enter, self.leave = nn.Linear(colours, width), nn.Linear(width, colours)
        self.tone = nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(depth))
        self.register_buffer("pitches", torch.linspace(0.2, 6, width // 2))

    def forward(self, x, level):
        power = level**2 + 1
        into = 1 / power.sqrt()
        angle = self.pitches.float() * (level.log() / 4)
        tone = self.tone(torch.cat((angle.sin(), angle.cos())).to(self.dtype))
        h = self.enter((x * into).to(self.dtype)) + tone
        for norm, up, down in zip(self.norms, self.up, self.down, strict=True):
            h = h + down(F.gelu(up(norm(h))))
        return x / power + self.leave(h).float() * (level * into)


class Levels:
    """Levels of noise from high to none, and a step from one to the next."""

    def __init__(self, count, device):
        ramp = torch.linspace(20 ** (1 / 7), 0.02 ** (1 / 7), count) ** 7
        self.levels = torch.cat((ramp, ramp.new_zeros(1))).to(device)
        self.low, self.high = 0.05, 10.0

    def step(self, weaver, x, at, noise):
        level, later = self.levels[at], self.levels[at + 1]
        raised = level
        if self.low <= level <= self.high:
            raised = level * 1.02
            x = x + noise * (raised**2 - level**2).sqrt()
        slope = (x - weaver(x, raised)) / raised
        length = later - raised
        ahead = x + slope * length
        if later == 0:
            return ahead
        slope_ahead = (ahead - weaver(ahead, later)) / later
        return x + (slope + slope_ahead) * (length / 2)


def prepare(device, repaired):
    cuda = device == "cuda"
    batch, threads, colours, width, depth = (16, 256, 48, 1024, 2) if cuda else (2, 3, 4, 8, 2)
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(31)
    weaver = Weaver(colours, width, depth, dtype).to(device, dtype).eval()
    levels = Levels(12 if cuda else 2, "cpu" if repaired else device)
    noise = torch.randn(2, batch, threads, colours, device=device)
    return weaver, levels, noise


@torch.inference_mode()
def run(state, steps, repaired):
    weaver, levels, noise = state
    count = len(levels.levels) - 1
    x = total = torch.zeros((), device=noise.device)
    for step in range(steps):
        at = step % count
        if at == 0:
            x = noise[0] * 20
        x = levels.step(weaver, x, at, noise[1])
        total = total + x.square().mean().sqrt()
    return total / steps


main(prepare, run, steps=480)
