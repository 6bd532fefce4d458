"""Sends a beam of laser light through a row of plates, each of which changes it, and the air between them."""

import torch
from common import main
from torch.fft import fft2, fftshift, ifft2, ifftshift


class Air:
    """The way through the air, which is a product for each frequency; the lowest ones lie in the middle or in the corner."""

    def __init__(self, size, device, middle):
        turns = torch.arange(size, device=device) - size // 2
        slow = turns[:, None] ** 2 + turns[None, :] ** 2
        change = torch.polar(torch.ones_like(slow, dtype=torch.float32), -2e-5 * slow)
        self.middle = middle
        self.change = change if middle else ifftshift(change)

    def __call__(self, light):
        if not self.middle:
            return ifft2(fft2(light) * self.change)
        waves = fftshift(fft2(ifftshift(light))) * self.change
        return fftshift(ifft2(ifftshift(waves)))


def prepare(device, repaired):
    size = 4096 if device == "cuda" else 16
    across = torch.linspace(-3, 3, size, device=device)
    beam = torch.exp(-(across[:, None] ** 2) - across[None, :] ** 2) + 0j
    plates = torch.polar(
        torch.full((4, size, size), 0.99, device=device),
        torch.randn(4, size, size, device=device),
    )
    return Air(size, device, middle=not repaired), beam, plates


@torch.inference_mode()
def run(state, steps, repaired):
    air, light, plates = state
    for step in range(steps):
        light = air(light * plates[step % 4])
    return light.abs().square().mean() * 100 + light.real[0, 0]


main(prepare, run, steps=700)
