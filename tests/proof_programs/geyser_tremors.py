"""Looks for tremors before a geyser breaks out: power of ground motion at many stations by scale of Morlet wavelets."""

import math

import torch
from common import main


class Wavelets:
    """Morlet wavelets of scales, as shapes (scales, length) in the domain of frequency."""

    def __init__(self, scales, length, together, device):
        turns = torch.fft.fftfreq(length, device=device) * 2 * math.pi
        sizes = torch.logspace(0.3, math.log10(length / 20), scales, device=device)
        away = sizes[:, None] * turns - 6
        self.shapes = torch.where(turns > 0, torch.exp(-0.5 * away.square()), 0.0)
        self.shapes *= sizes[:, None].sqrt()
        self.powers = self.all_at_once if together else self.scale_by_scale

    def scale_by_scale(self, heard):
        waves = torch.fft.fft(heard)
        powers = []
        for shape in self.shapes:
            found = torch.fft.ifft(waves * shape)
            powers.append(found.abs().square().mean(1))
        return torch.stack(powers, 1)

    def all_at_once(self, heard):
        waves = torch.fft.fft(heard)
        found = torch.fft.ifft(waves[:, None] * self.shapes)
        return found.abs().square().mean(2)


def prepare(device, repaired):
    cuda = device == "cuda"
    stations, length, scales = (32, 16384, 96) if cuda else (3, 64, 5)
    torch.manual_seed(12)
    motion = torch.randn(stations, 5 * length, device=device)
    wavelets = Wavelets(scales, length, together=repaired, device=device)
    return wavelets, motion, length


@torch.inference_mode()
def run(state, steps, repaired):
    wavelets, motion, length = state
    total = torch.zeros((), device=motion.device)
    for step in range(steps):
        begin = step * (length // 4) % (4 * length)
        powers = wavelets.powers(motion[:, begin : begin + length])
        total += powers.log1p().mean()
    return total / steps


main(prepare, run, steps=160)
