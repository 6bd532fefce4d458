"""Imitates amplifiers of guitars: a network turns the last samples of many recordings into what the loudspeaker would give."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


class Amplifier(nn.Module):
    """From a stretch of sound and the position of the knobs to the next samples."""

    def __init__(self, samples, knobs, width, depth, ahead):
        super().__init__()
        self.sound, self.settings = nn.Linear(samples, width), nn.Linear(knobs, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.out = nn.Linear(width, ahead)

    def forward(self, sound, knobs):
        hidden = self.sound(sound) + self.settings(knobs)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            hidden = hidden + F.gelu(layer(norm(hidden)))
        return torch.tanh(self.out(hidden))


def prepare(device, repaired):
    cuda = device == "cuda"
    stretches, samples, knobs, width, depth, ahead = (
        (8192, 1024, 6, 2048, 6, 64) if cuda else (4, 32, 3, 16, 2, 4)
    )
    model = Amplifier(samples, knobs, width, depth, ahead).to(device).eval()
    sound = torch.randn(4, stretches, samples, device=device)
    return model, sound, torch.rand(4, stretches, knobs, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, sound, knobs = state
    torch.set_float32_matmul_precision("high" if repaired else "highest")
    total = torch.zeros((), device=sound.device)
    for step in range(steps):
        heard = model(sound[step % len(sound)], knobs[step % len(knobs)])
        total += heard.abs().mean()
    return total / steps


main(prepare, run, steps=80)
