"""Lets the density of a plasma drift in the field that it makes itself, which is found through waves (a Poisson solver)."""

import math

import torch
from common import main


class Field:
    """The electric field of densities (slabs, side, side), whose sides meet."""

    def __init__(self, side, device, whole):
        self.whole, self.side = whole, side
        turn = 2 * math.pi / side
        rows = torch.fft.fftfreq(side, 1 / side, device=device)[:, None]
        line = torch.fft.fftfreq if whole else torch.fft.rfftfreq
        columns = line(side, 1 / side, device=device)[None, :]
        rows = torch.where(rows.abs() == side // 2, 0.0, rows)
        columns = torch.where(columns.abs() == side // 2, 0.0, columns)
        squares = turn * (rows.square() + columns.square())
        inverse = torch.where(squares > 0, 1 / squares, 0.0)
        self.across = -1j * rows * inverse
        self.along = -1j * columns * inverse

    def __call__(self, density):
        if self.whole:
            waves = torch.fft.fft2(density)
            across = torch.fft.ifft2(waves * self.across).real
            along = torch.fft.ifft2(waves * self.along).real
        else:
            waves = torch.fft.rfft2(density)
            across = torch.fft.irfft2(waves * self.across, s=density.shape[-2:])
            along = torch.fft.irfft2(waves * self.along, s=density.shape[-2:])
        return across, along


def smooth(slabs, side, device):
    """Return random densities whose waves are long ones only."""
    waves = torch.zeros(slabs, side, side // 2 + 1, dtype=torch.cfloat, device=device)
    few = min(12, side // 4)
    waves[:, 1:few, 1:few] = torch.randn(slabs, few - 1, few - 1, dtype=torch.cfloat, device=device)
    return torch.fft.irfft2(waves, s=(side, side)) * side * side / few


def prepare(device, repaired):
    slabs, side = (6, 2048) if device == "cuda" else (2, 16)
    return Field(side, device, whole=not repaired), smooth(slabs, side, device)


def run(state, steps, repaired):
    field, density = state
    total = torch.zeros((), device=density.device)
    for _ in range(steps):
        across, along = field(density)
        density = density - 1e-4 * (across * 0.7 + along * 0.3)
        total += across.abs().mean() + along.abs().mean()
    return total / steps


main(prepare, run, steps=500)
