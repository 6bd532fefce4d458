"""Listens to church bells with microphones of several rates, brings all to one rate, and tells which bell it was."""

import math

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def filters(old, new, device, zeros=6, rolloff=0.99):
    """Return windowed sinc filters (new, 1, taps) from a rate to another, and their reach."""
    base = min(old, new) * rolloff
    reach = math.ceil(zeros * old / base)
    places = torch.arange(-reach, reach + old, device=device)[None] / old
    phases = torch.arange(0, -new, -1, device=device)[:, None] / new
    times = ((places + phases) * base).clamp(-zeros, zeros)
    window = torch.cos(times * math.pi / zeros / 2) ** 2
    times = times * math.pi
    waves = torch.where(times == 0, torch.ones_like(times), times.sin() / times)
    return (waves * window * (base / old))[:, None], reach


class Resampler:
    """Brings sounds (batch, samples) to another rate."""

    def __init__(self, wanted, keep):
        self.wanted, self.keep, self.kept = wanted, keep, {}

    def filters(self, rate, device):
        if self.keep and rate in self.kept:
            return self.kept[rate]
        common = math.gcd(rate, self.wanted)
        self.kept[rate] = filters(rate // common, self.wanted // common, device)
        return self.kept[rate]

    def __call__(self, sounds, rate):
        bank, reach = self.filters(rate, sounds.device)
        stride = rate // math.gcd(rate, self.wanted)
        padded = F.pad(sounds, (reach, reach + stride))
        parts = F.conv1d(padded[:, None], bank, stride=stride)
        return parts.transpose(1, 2).flatten(1)


class Bells(nn.Module):
    def __init__(self, width, taps, bells):
        super().__init__()
        self.enter = nn.Conv1d(1, width, taps, stride=taps // 2)
        self.last = nn.Linear(width, bells)

    def forward(self, sounds):
        return self.last(F.relu(self.enter(sounds[:, None])).mean(2))


def prepare(device, repaired):
    cuda = device == "cuda"
    towers, rates, wanted, width, taps, bells = (
        (4, (48000, 44100, 22050, 32000), 16000, 64, 256, 12)
        if cuda
        else (2, (480, 441), 160, 8, 16, 3)
    )
    torch.manual_seed(19)
    sounds = [torch.randn(towers, rate // 4, device=device) for rate in rates]
    return (
        Resampler(wanted, keep=repaired),
        Bells(width, taps, bells).to(device).eval(),
        sounds,
        rates,
    )


@torch.inference_mode()
def run(state, steps, repaired):
    resample, model, sounds, rates = state
    total = torch.zeros((), device=sounds[0].device)
    for _ in range(steps):
        for sound, rate in zip(sounds, rates, strict=True):
            total += model(resample(sound, rate)).softmax(-1).amax(1).mean()
    return total / steps


main(prepare, run, steps=600)
