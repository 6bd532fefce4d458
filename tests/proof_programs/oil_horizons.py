"""Computes what geologists look at to find oil: envelope, phase and frequency of the echoes along traces of a survey."""

import numpy as np
import torch
from common import main


def taper(samples, share):
    """Return a window that falls to nothing at both ends of a trace."""
    ends = int(samples * share)
    window = np.ones(samples)
    window[:ends] = 0.5 - 0.5 * np.cos(np.pi * np.arange(ends) / ends)
    window[-ends:] = window[:ends][::-1]
    return window


def analytic(traces):
    """Return the traces with their quadrature as imaginary part, (traces, samples)."""
    samples = traces.shape[-1]
    spectrum = torch.fft.fft(traces)
    spectrum[:, 1 : samples // 2] *= 2
    spectrum[:, samples // 2 + 1 :] = 0
    return torch.fft.ifft(spectrum)


class Attributes:
    def __init__(self, samples, interval, device, repaired):
        window = taper(samples, share=0.1)
        if repaired:
            window = window.astype(np.float32)
        self.window = torch.from_numpy(window).to(device)
        self.interval = interval

    def __call__(self, traces):
        """Return envelope, cosine of the phase, and frequency, each (traces, samples)."""
        quiet = traces * self.window
        echo = analytic(quiet - quiet.mean(dim=1, keepdim=True))
        envelope = echo.abs()
        phase = echo.angle()
        turn = phase[:, 1:] - phase[:, :-1]
        turn = turn - 2 * np.pi * torch.round(turn / (2 * np.pi))
        frequency = turn.abs() / (2 * np.pi * self.interval)
        smooth = torch.nn.functional.avg_pool1d(envelope[:, None], 9, stride=1, padding=4)[:, 0]
        return smooth / (envelope + 1), torch.cos(phase), frequency


def prepare(device, repaired):
    cuda = device == "cuda"
    traces, samples = (32768, 1024) if cuda else (8, 64)
    attributes = Attributes(samples, 0.004, device, repaired)
    return attributes, torch.randn(2, traces, samples, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    attributes, survey = state
    total = torch.zeros((), device=survey.device)
    for step in range(steps):
        share, cosine, frequency = attributes(survey[step % len(survey)])
        total += share.mean() + cosine.abs().mean() + frequency.mean() / 100
    return total / steps


main(prepare, run, steps=200)
