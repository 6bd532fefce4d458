"""Lets vortices of a flow in two dimensions move, in Fourier space (pseudo-spectral method)."""

import math

import torch
from common import main


class Complex:
    """Transforms that know nothing of the fields."""

    @staticmethod
    def waves(size, device):
        k = torch.fft.fftfreq(size, 1 / size, device=device)
        return k[:, None], k[None, :]

    there = staticmethod(lambda field: torch.fft.fft2(field))

    @staticmethod
    def back(waves, size):
        return torch.fft.ifft2(waves).real


class Real:
    """Transforms of fields of real numbers."""

    @staticmethod
    def waves(size, device):
        return (
            torch.fft.fftfreq(size, 1 / size, device=device)[:, None],
            torch.fft.rfftfreq(size, 1 / size, device=device)[None, :],
        )

    there = staticmethod(lambda field: torch.fft.rfft2(field))

    @staticmethod
    def back(waves, size):
        return torch.fft.irfft2(waves, (size, size))


def prepare(device, repaired):
    size, flows = (2048, 2) if device == "cuda" else (32, 1)
    kind = Real if repaired else Complex
    ky, kx = kind.waves(size, device)
    squares = kx**2 + ky**2
    low = (kx.abs() < size / 3) & (ky.abs() < size / 3)
    line = torch.arange(size, device=device) * (2 * math.pi / size)
    field = torch.sin(3 * line)[:, None] * torch.cos(4 * line) + torch.cos(5 * line + 1)
    fields = torch.stack([field * (1 + 0.1 * number) for number in range(flows)])
    return kind, fields, kx, ky, squares, low


@torch.inference_mode()
def run(state, steps, repaired):
    kind, fields, kx, ky, squares, low = state
    size, dt, viscosity = fields.shape[-1], 1e-3, 1e-4
    inverse = torch.where(squares > 0, 1 / squares, 0.0)
    decay = torch.exp(-viscosity * dt * squares) * low
    waves = kind.there(fields)
    for _ in range(steps):
        stream = waves * inverse
        u, v = kind.back(1j * ky * stream, size), kind.back(-1j * kx * stream, size)
        wx, wy = kind.back(1j * kx * waves, size), kind.back(1j * ky * waves, size)
        waves = (waves - dt * kind.there(u * wx + v * wy)) * decay
    return kind.back(waves, size).square().mean()


main(prepare, run, steps=300)
