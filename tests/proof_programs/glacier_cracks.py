"""Listens to a glacier: sounds of all hydrophones are filtered with shapes of cracks that are known, and the best fits are kept."""

import torch
from common import main


class Listener:
    """Fits of sounds (hydrophones, moments) to shapes of cracks, by products of spectra."""

    def __init__(self, shapes, length, half):
        self.half = half
        self.spectra = (torch.fft.rfft if half else torch.fft.fft)(shapes, length).conj().resolve_conj()

    def fits_whole(self, sounds, number):
        spectrum = torch.fft.fft(sounds)
        return torch.fft.ifft(spectrum.mul_(self.spectra[number])).real

    def fits_half(self, sounds, number):
        spectrum = torch.fft.rfft(sounds)
        return torch.fft.irfft(spectrum.mul_(self.spectra[number]), sounds.shape[1])

    def __call__(self, sounds, number):
        fits = self.fits_half(sounds, number) if self.half else self.fits_whole(sounds, number)
        return fits.amax(1)


def prepare(device, repaired):
    cuda = device == "cuda"
    hydrophones, length, kinds, long = (512, 65536, 8, 4096) if cuda else (3, 64, 2, 16)
    torch.manual_seed(31)
    sounds = torch.randn(2, hydrophones, length, device=device)
    ramp = torch.arange(long, device=device) / long
    pitches = torch.rand(kinds, 1, device=device) * 200 + 20
    shapes = torch.sin(pitches * ramp) * torch.exp(-6 * ramp) * long**-0.5
    return Listener(shapes, length, repaired), sounds, kinds


@torch.inference_mode()
def run(state, steps, repaired):
    listener, sounds, kinds = state
    best = torch.zeros(sounds.shape[1], device=sounds.device)
    for step in range(steps):
        best += listener(sounds[step % 2], step % kinds)
    return best.mean() / steps


main(prepare, run, steps=600)
